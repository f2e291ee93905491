// The handler of every story. What it does is told by the message's payload; what it did is in the history file. Used by
// probe.ts, in processes of their own (fleet.ts) and in the test's process (`story.local()`).
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Handler, HandlerResult, Turn } from '../../src/index.ts'
import type { Note } from './history.ts'

export type Script =
  /** Replies at once. */
  | { do: 'echo' }
  /** Takes a while; ends early, by throwing, when the signal fires. */
  | { do: 'sleep'; ms: number }
  /** Memoised steps of `ms` each; step number `holdAt` (from 0) first waits for the gate `gate`. */
  | { do: 'steps'; count: number; ms?: number; holdAt?: number; gate?: string }
  /** Streams words, `ms` apart, with a note in between. */
  | { do: 'speak'; words: number; ms: number }
  /** Throws on its first `times` attempts. */
  | { do: 'fail'; times: number }
  /** Takes the process down with it, on its first `times` attempts (default: always). */
  | { do: 'bomb'; times?: number; gate?: string }
  /** Waits for its signal. */
  | { do: 'hang' }
  /** Ignores its signal for `ms` (or until the gate opens) and goes on writing. */
  | { do: 'deaf'; ms: number; gate?: string }
  /** Blocks the event loop until the gate opens. */
  | { do: 'block'; gate: string }
  /** Opens a tool call, waits for the gate (if any), closes the call. `crash`: dies in between, on attempt 1. */
  | { do: 'tool'; crash?: 'between'; gate?: string }
  /** Waits until the gate is open (a file of that name in the story's folder) or its signal fires. */
  | { do: 'gate'; name: string }

interface Surroundings {
  /** Where gates are. */
  readonly folder: string
  readonly note: (note: Note) => void
}

export function probeHandler({ folder, note: write }: Surroundings): Handler {
  const opened = (name: string | undefined) => name === undefined || existsSync(join(folder, name))
  return async (turn) => {
    const { sessionId: session, attempt, epoch, signal } = turn
    const { seq } = turn.message
    const note = (what: string, more: Partial<Note> = {}) =>
      write({ what, session, seq, attempt, epoch, ...more })
    note('start')
    const gate = async (name: string | undefined, until?: AbortSignal) => {
      if (name !== undefined && !opened(name)) note('waiting', { name })
      while (!opened(name)) {
        until?.throwIfAborted()
        await sleep(10)
      }
    }
    const fired = () => note('signal', { reason: (signal.reason as { reason: string }).reason })
    if (signal.aborted) fired()
    else signal.addEventListener('abort', fired, { once: true })
    try {
      const result = await play(turn, turn.message.payload as unknown as Script, { note, gate, opened })
      note('end')
      return result
    } catch (error) {
      note(signal.aborted ? 'abort' : 'threw', {
        reason: error instanceof Error ? error.message : String(error),
      })
      throw error
    }
  }
}

interface Stage {
  readonly note: (what: string, more?: Partial<Note>) => void
  readonly gate: (name: string | undefined, signal?: AbortSignal) => Promise<void>
  readonly opened: (name: string | undefined) => boolean
}

async function play(turn: Turn, script: Script, { note, gate, opened }: Stage): Promise<HandlerResult> {
  const { signal, attempt } = turn
  const { seq } = turn.message
  const reply = `${script.do} ${seq}`
  switch (script.do) {
    case 'echo':
      return reply
    case 'sleep':
      await sleep(script.ms, undefined, { signal })
      return reply
    case 'steps':
      for (let step = 0; step < script.count; step++) {
        await turn.step(`step-${step}`, async () => {
          if (step === script.holdAt) await gate(script.gate, signal)
          await sleep(script.ms ?? 0, undefined, { signal })
          note('effect', { step: `step-${step}` })
          return step
        })
      }
      return reply
    case 'speak':
      for (let word = 1; word <= script.words; word++) {
        turn.emit(word)
        await sleep(script.ms, undefined, { signal })
        if (word === 2) await turn.append({ type: 'note', payload: word })
      }
      return reply
    case 'fail':
      if (attempt <= script.times) throw new Error(`failure ${attempt}`)
      return reply
    case 'bomb':
      await gate(script.gate, signal)
      if (attempt <= (script.times ?? Infinity)) process.abort()
      return reply
    case 'hang':
      await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
      throw signal.reason
    case 'deaf':
      return await ignoreSignal(turn, script, { note, gate, opened })
    case 'block':
      while (!opened(script.gate)) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20)
      return reply
    case 'tool':
      await turn.append({ type: 'tool_call', callId: `call-${attempt}`, payload: { tool: 'probe' } })
      note('called')
      if (script.crash === 'between' && attempt === 1) process.kill(process.pid, 'SIGKILL')
      await gate(script.gate, signal)
      await turn.append({ type: 'tool_result', callId: `call-${attempt}`, payload: 'ok' })
      return reply
    case 'gate':
      await gate(script.name, signal)
      return reply
  }
}

async function ignoreSignal(
  turn: Turn,
  script: { ms: number; gate?: string },
  { note, opened }: Stage,
): Promise<HandlerResult> {
  const end = performance.now() + script.ms
  while (performance.now() < end && (script.gate === undefined || !opened(script.gate))) {
    await sleep(25)
    turn.emit({ late: turn.signal.aborted })
    const late = turn.signal.aborted
    await turn.append({ type: 'note', payload: { late } }).then(
      () => late && note('wrote'),
      (error: unknown) => note('refused', { reason: (error as { code?: string }).code ?? String(error) }),
    )
  }
  return `deaf ${turn.message.seq}`
}
