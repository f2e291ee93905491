/**
 * Which tool calls of a turn are open. A transcript in which a call has no result, or two, is refused by every model
 * API, and then the whole conversation is stuck; so pairs are checked before anything is written.
 */
import { InvalidInputError } from '../base/errors.ts'
import { ENTRY, type EntryDraft } from '../protocol/session-row.ts'

export class ToolCalls {
  readonly #state: Map<string, 'open' | 'closed'>

  /** Goes on from `before` without changing it. */
  constructor(before?: ToolCalls) {
    this.#state = new Map(before === undefined ? [] : before.#state)
  }

  /** Notes a call or its result; throws when it does not fit. Returns how to take the note back. */
  note({ type, callId }: EntryDraft): () => void {
    if (callId === undefined || (type !== ENTRY.toolCall && type !== ENTRY.toolResult)) return () => {}
    const before = this.#state.get(callId)
    if (type === ENTRY.toolCall && before !== undefined) {
      throw new InvalidInputError(
        'INVALID_ENTRY',
        `Tool call "${callId}" was already opened in this turn: use a new id.`,
      )
    }
    if (type === ENTRY.toolResult && before !== 'open') {
      const what = before === 'closed' ? 'already has its result' : 'was not opened in this turn'
      throw new InvalidInputError(
        'INVALID_ENTRY',
        `Tool call "${callId}" ${what}: append one tool_call, then one result.`,
      )
    }
    this.#state.set(callId, type === ENTRY.toolCall ? 'open' : 'closed')
    return () => {
      if (before === undefined) this.#state.delete(callId)
      else this.#state.set(callId, before)
    }
  }

  get open(): string[] {
    return [...this.#state].filter(([, state]) => state === 'open').map(([callId]) => callId)
  }
}
