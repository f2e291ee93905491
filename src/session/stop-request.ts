/** Checks what a stop asks for and makes a rule of it. Throws InvalidInputError; writes nothing. */
import { checkOptions, checkSignal, whole } from '../base/arguments.ts'
import { InvalidInputError, RefusedError } from '../base/errors.ts'
import type { Rule } from '../mysql/ledger.ts'
import { stop, type Stopped, stopTurn } from '../protocol/intake.ts'
import type { StopOptions } from './answers.ts'
import { unknownMessage, unknownSession } from './unknown.ts'

const WAIT_MAX_MS = 3_600_000

export function stopRequest(options: StopOptions) {
  checkOptions(options, ['through', 'turn', 'waitMs', 'signal'])
  const { signal } = options
  checkSignal(signal)
  const waitMs = whole('waitMs', options.waitMs ?? 0, 0, WAIT_MAX_MS)
  let through = options.through === undefined ? undefined : whole('through', options.through, 0)
  let turn =
    options.turn === undefined || options.turn === 'running' ? options.turn : whole('turn', options.turn, 1)
  if (turn !== undefined && through !== undefined) {
    throw new InvalidInputError('INVALID_OPTIONS', 'Give either through or turn: they stop different things.')
  }
  // After a lost answer the rule runs again: it stops what it met at first, and nothing that came since.
  const rule: Rule<ReturnType<typeof stopTurn>> = (draft) => {
    if (turn === undefined) return stop(draft, (through ??= draft.row.inboxSeq))
    const stopped = stopTurn(draft, turn)
    if (typeof stopped === 'object') turn = stopped.underWay ?? turn
    return stopped
  }
  /** What the rule met; throws why it refused. */
  const met = (id: string, stopped: ReturnType<typeof stopTurn>): Stopped => {
    if (!stopped) throw unknownSession(id)
    if (stopped === 'missing') throw unknownMessage(id, Number(turn))
    if (stopped === 'not-started') {
      throw new RefusedError('NOT_RUNNING', `Message ${turn} has not started: withdraw it instead.`)
    }
    return stopped
  }
  return { rule, met, waitMs, signal }
}
