/** Checks what a producer wants to send and makes it ready for the inbox. Throws InvalidInputError; writes nothing. */
import { checkOptions, oneOf } from '../base/arguments.ts'
import { InvalidInputError } from '../base/errors.ts'
import { checkKey, checkKind, checkSessionId, newMessageId, show } from '../base/ids.ts'
import type { Tunables } from '../base/options.ts'
import { fingerprint, serialise } from '../base/payload.ts'
import type { Submission, WhenBusy } from '../protocol/intake.ts'
import type { MessageSource } from '../protocol/session-row.ts'

/** A string is a message of kind `message` with that string as its payload. */
export type MessageInput = string | { readonly kind?: string | undefined; readonly payload: unknown }

export interface SendOptions {
  /** Makes the call repeatable: enqueues with the same session and key are one message. 1 to 200 printable ASCII characters. */
  readonly idempotencyKey?: string | undefined
  /** Who sends. Default `user`. */
  readonly source?: MessageSource | undefined
  /**
   * What to do when a turn runs or messages wait: `enqueue` behind them (default), `interrupt` (stop them, then run
   * this one), or `reject` (SESSION_BUSY).
   */
  readonly whenBusy?: WhenBusy | undefined
  /** W3C trace context, handed to the handler as it is. */
  readonly traceparent?: string | undefined
}

const SOURCES: readonly MessageSource[] = ['user', 'agent', 'automation', 'system']
const WHEN_BUSY: readonly WhenBusy[] = ['enqueue', 'interrupt', 'reject']
export const SEND_OPTIONS = ['idempotencyKey', 'source', 'whenBusy', 'traceparent'] as const
const TRACEPARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/

export function toSubmission(
  sessionId: unknown,
  message: unknown,
  options: SendOptions,
  tunables: Tunables,
  retryOf: number | null = null,
): Submission {
  checkOptions(options, SEND_OPTIONS)
  const { kind, payload: value } = parts(message)
  const source = oneOf('source', options.source ?? 'user', SOURCES)
  const { payloadMaxBytes: maxBytes, payloadMaxDepth: maxDepth } = tunables
  const payload = serialise(value, { maxBytes, maxDepth, what: 'Message payload' })
  const { traceparent = null } = options
  if (traceparent !== null && !TRACEPARENT.test(traceparent)) {
    throw new InvalidInputError(
      'INVALID_ARGUMENT',
      'traceparent must be a W3C traceparent header, version 00.',
    )
  }
  const id = newMessageId()
  return {
    sessionId: checkSessionId(sessionId),
    id,
    key: options.idempotencyKey === undefined ? id : checkKey('Idempotency key', options.idempotencyKey),
    fingerprint: fingerprint([kind, source, payload]),
    kind,
    source,
    payload,
    whenBusy: oneOf('whenBusy', options.whenBusy ?? 'enqueue', WHEN_BUSY),
    traceparent,
    retryOf,
  }
}

function parts(message: unknown): { kind: string; payload: unknown } {
  if (typeof message === 'string') return { kind: 'message', payload: message }
  if (typeof message !== 'object' || message === null || !('payload' in message)) {
    throw new InvalidInputError(
      'INVALID_MESSAGE',
      `A message is a string or an object { kind?, payload }, not ${show(message)}.`,
    )
  }
  const { kind = 'message', payload, ...rest } = message as { kind?: unknown; payload: unknown }
  // An option among them, such as an idempotencyKey, would be ignored.
  const [unknown] = Object.keys(rest)
  if (unknown !== undefined) {
    throw new InvalidInputError(
      'INVALID_MESSAGE',
      `A message has a kind and a payload, and no ${show(unknown)}.`,
    )
  }
  return { kind: checkKind('Message kind', kind), payload }
}
