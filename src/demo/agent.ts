/**
 * The demo's agent: plays a script, where another would ask a model. It streams words, calls tools as steps (a finished
 * one is not run again after a takeover), keeps calls and results in the transcript, and returns its reply.
 */
import { sleep } from '../base/timing.ts'
import type { Handler, Turn } from '../index.ts'
import type { Finding, ToolName, Tools } from './tools.ts'

type Findings = Partial<Record<ToolName, Finding>>
/** A tool to call, or something to say about what was found so far. */
type Beat = ToolName | ((found: Findings) => string)

interface Script {
  readonly question: string
  readonly beats: readonly Beat[]
}

export const SCRIPTS: readonly Script[] = [
  {
    question: 'Is everything all right below stairs?',
    beats: [
      () => 'A moment, please, I shall go down and look.',
      'redis',
      ({ redis }) => `Redis has answered ${redis?.['commands']} requests and is in good spirits.`,
      'database',
      ({ database }) => `The ledger holds ${database?.['messages']} messages, every one of them in ink.`,
      'rest',
      () => 'I waited a little to be sure, and nothing has changed for the worse.',
    ],
  },
  {
    question: 'What does it say above the door?',
    beats: [
      () => 'I know it by heart, but let me read it all the same.',
      'file',
      ({ file }) => `It says: ${file?.['motto']}`,
      'rest',
      () => 'A fine motto, and we live by it.',
    ],
  },
  {
    question: 'How many lines have been written tonight?',
    beats: [
      () => 'I shall count them, slowly, so that I need not count twice.',
      'database',
      ({ database }) => `There are ${database?.['entries']} lines in the transcripts of this house.`,
      'rest',
      'redis',
      ({ redis }) => `And ${redis?.['connections']} connections to Redis, however many rooms there are.`,
    ],
  },
]

export const scriptOf = (index: number): Script => {
  const script = SCRIPTS[index % SCRIPTS.length]
  if (!script) throw new Error('There is no script.')
  return script
}

/** What a spectator may want to see while it happens. */
export interface Spectator {
  said(turn: Turn, word: string): void
  /** `fresh`: it ran now; otherwise its stored result was taken. */
  used(turn: Turn, tool: ToolName, fresh: boolean): void
}

const WORD_MS = 80

export function createAgent(tools: Tools, spectator: Spectator): Handler {
  return async (turn) => {
    const { beats } = scriptOf((turn.message.payload as { script: number }).script)
    const found: Findings = {}
    const spoken: string[] = []
    for (const [index, beat] of beats.entries()) {
      if (typeof beat === 'string') {
        found[beat] = await useTool(turn, tools, spectator, { tool: beat, step: `${index + 1} ${beat}` })
      } else {
        const sentence = beat(found)
        await speak(turn, spectator, sentence)
        spoken.push(sentence)
      }
    }
    return spoken.join(' ')
  }
}

async function speak(turn: Turn, spectator: Spectator, sentence: string): Promise<void> {
  for (const word of sentence.split(' ')) {
    turn.signal.throwIfAborted()
    turn.emit(`${word} `)
    spectator.said(turn, word)
    await sleep(WORD_MS, turn.signal)
  }
}

async function useTool(
  turn: Turn,
  tools: Tools,
  spectator: Spectator,
  call: { tool: ToolName; step: string },
): Promise<Finding> {
  let fresh = false
  const result = await turn.step(call.step, async () => {
    fresh = true
    // A name per attempt: a call that was cut off has its own, interrupted, result.
    const callId = `${turn.message.seq}.${turn.attempt} ${call.step}`
    await turn.append({ type: 'tool_call', callId, payload: call })
    const finding = await tools.use(call.tool, turn.signal)
    await turn.append({ type: 'tool_result', callId, payload: finding })
    return finding
  })
  spectator.used(turn, call.tool, fresh)
  return result
}
