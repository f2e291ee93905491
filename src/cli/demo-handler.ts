/** What `dev` serves when it is given no handler: a scripted agent that calls a tool, remembers a step and speaks in words. */
import { sleep } from '../base/timing.ts'
import type { Turn } from '../index.ts'

const WORD_MS = 60

export async function handler(turn: Turn): Promise<string> {
  const { payload, seq } = turn.message
  const said = typeof payload === 'string' ? payload : JSON.stringify(payload)
  const callId = `clock-${turn.attempt}`
  await turn.append({ type: 'tool_call', callId, payload: { tool: 'clock' } })
  await turn.append({ type: 'tool_result', callId, payload: { time: new Date().toISOString() } })
  const words = await turn.step('count words', () => said.split(/\s+/).filter((word) => word !== '').length)
  const reply = `Message ${seq} has ${words} ${words === 1 ? 'word' : 'words'}: ${said}`
  for (const word of reply.split(' ')) {
    turn.signal.throwIfAborted()
    turn.emit(`${word} `)
    await sleep(WORD_MS, turn.signal)
  }
  return reply
}
