/** What a butler needs of the process it works in. The worker wires it; nothing here decides anything. */
import type { Message, TurnName } from '../protocol/session-row.ts'
import type { Notifier } from './notifier.ts'
import type { Stores } from './stores.ts'
import type { Handler } from './handler.ts'

export type Unrunnable = Pick<Message, 'seq' | 'kind' | 'version'>

export interface House {
  readonly processId: string
  readonly stores: Stores
  readonly notifier: Notifier
  /** Whether this process takes no further turns. */
  readonly draining: () => boolean
  /** Whether the time for running turns is over too. */
  readonly handingOver: () => boolean
  /** Whether a butler may start its session's next turn at once, because nobody waits for its slot. */
  readonly mayGoOn: () => boolean
  /** The newest form of messages that this process understands. */
  readonly version: number
  readonly handlerFor: (kind: string) => Handler | undefined
  /** Claims the one place for a suspect message in this process; false when another session has it. */
  readonly maySuspect: (sessionId: string) => boolean
  readonly isDead: (processId: string) => boolean
  /** A busy lock of another process is in the way. */
  readonly onHeld: (sessionId: string, lockValue: string) => void
  /** The lock was free but the row says that a turn is running. */
  readonly onContested: (sessionId: string, running: TurnName) => void
  /** This process cannot run the session's next message. */
  readonly onUnrunnable: (sessionId: string, message: Unrunnable) => void
  /** A handler ignored its signal and still runs; returns how many such there are. */
  readonly onDetached: (handlerDone: Promise<void>) => number
  /** Renews the session's lock and settles any doubt about it by the row. */
  readonly verify: (sessionId: string) => Promise<void>
}
