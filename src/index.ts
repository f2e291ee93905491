/** The public API: everything an application may import, and nothing else. */
import { type Connections } from './session/stores.ts'
import { Client } from './session/client.ts'
import { Worker, type WorkerOptions } from './session/worker.ts'

/** For producers and readers; see {@link Client}. */
export const createClient = (options: Connections): Client => new Client(options)

/** For processes that run turns; see {@link Worker}. */
export const createWorker = (options: WorkerOptions): Worker => new Worker(options)

export type { Client, Connections, Worker, WorkerOptions }
export {
  type AbortReason,
  ButlerError,
  ClosedError,
  CutOffError,
  type ErrorCode,
  InvalidInputError,
  NotFoundError,
  RefusedError,
  TurnAbortedError,
  UnavailableError,
} from './base/errors.ts'
export { checkSessionId } from './base/ids.ts'
export { DEFAULTS, type Retention, type Tunables, type TunablesInput } from './base/options.ts'
export type { Json } from './base/payload.ts'
export { createLogger, type Logger } from './base/telemetry.ts'
export type { EventName, Events } from './base/events.ts'
export type { MysqlSource } from './mysql/connect.ts'
export type { MessageTimes } from './mysql/message-times.ts'
export type { MigrationStatus } from './mysql/migrate.ts'
export type { Pruned, RetentionAges } from './mysql/retention.ts'
export type { SessionSummary } from './mysql/sessions.ts'
export type { Accepted, WhenBusy } from './protocol/intake.ts'
export type { MessageSource, TurnOutcome } from './protocol/session-row.ts'
export type { StopResult } from './protocol/stop-outcome.ts'
export { type Audit, openAudit } from './session/audit.ts'
export type {
  AcceptedInTransaction,
  CallersTransaction,
  QueuedMessage,
  SendItem,
  SendResult,
  StopOptions,
  StopOutcome,
  StopReceipt,
  TranscriptPage,
} from './session/answers.ts'
export { type Check, diagnose, type Diagnosis } from './session/diagnosis.ts'
export type { Entry, EntryInput } from './session/entry.ts'
export type {
  AttemptsView,
  EntryView,
  Explanation,
  LockView,
  OwnerView,
  QueueView,
  Transition,
  TurnView,
} from './session/explanation.ts'
export type { ProcessView } from './session/fleet-view.ts'
export { instrument, type MetricsSource } from './session/instruments.ts'
export type { Health, HealthOptions, Problem, ProblemCode } from './session/health.ts'
export type { SessionView } from './session/inspection.ts'
export {
  type Keyring,
  type KeyOptions,
  type KeyView,
  openKeyring,
  type Scope,
  type VerifiedKey,
} from './session/keyring.ts'
export { type Metric, METRICS } from './session/metrics.ts'
export { migrate, migrationStatus } from './session/migration.ts'
export type { CursorMove, ReaderCursor } from './session/reader-cursor.ts'
export type { MessageInput, SendOptions } from './session/submission.ts'
export type { Handler, HandlerResult, Turn, TurnMessage } from './session/handler.ts'
export type { LockKind, SessionVerdict, VerdictCode } from './session/verdict.ts'
export type {
  DeltaEvent,
  EntryEvent,
  GapEvent,
  ResyncEvent,
  StateEvent,
  WatchEvent,
  WatchOptions,
} from './session/watch-events.ts'
export type { DrainOptions, WorkerEnd } from './session/worker.ts'
