/**
 * Errors as answers: problem details (RFC 9457) with stable codes. What a caller may know of the inside ends here: an
 * error that nobody foresaw is answered by a number that the log has too.
 */
import { nanoid } from 'nanoid'
import { ButlerError, type ErrorCode, UnavailableError } from '../index.ts'

/** Codes of refusals that only a request over HTTP can meet. */
export type HttpCode =
  | 'UNAUTHENTICATED'
  | 'FORBIDDEN'
  | 'NOT_FOUND'
  | 'METHOD_NOT_ALLOWED'
  | 'UNSUPPORTED_MEDIA_TYPE'
  | 'INVALID_BODY'
  | 'BODY_TOO_LARGE'
  | 'OVERLOADED'
  | 'DRAINING'
  | 'INTERNAL'

/** A request that is answered by an error; `detail` is for the caller to read. */
export class Refusal extends Error {
  readonly status: number
  readonly code: HttpCode | ErrorCode
  readonly headers: Readonly<Record<string, string>>

  constructor(status: number, code: HttpCode | ErrorCode, detail: string, headers = {}) {
    super(detail)
    this.status = status
    this.code = code
    this.headers = headers
  }
}

/** Of a caller who is not who he says he is, of whatever kind: always the same answer. */
export const unauthenticated = () =>
  new Refusal(401, 'UNAUTHENTICATED', 'Send a valid key or token: Authorization: Bearer …', {
    'www-authenticate': 'Bearer',
  })

/** Of a session that does not exist, and of one that is somebody else's: always the same answer. */
export const noSuchSession = () => new Refusal(404, 'SESSION_NOT_FOUND', 'There is no such session.')

/** Seconds after which it is worth to ask again. */
const RETRY_AFTER = { QUEUE_FULL: '1', OVERLOADED: '1', DRAINING: '1', UNAVAILABLE: '2' }

const STATUS: Readonly<Record<ErrorCode, number>> = {
  INVALID_SESSION_ID: 400,
  INVALID_KEY: 400,
  INVALID_MESSAGE: 400,
  INVALID_ENTRY: 400,
  INVALID_ARGUMENT: 400,
  INVALID_CURSOR: 400,
  INVALID_OPTIONS: 400,
  PAYLOAD_TOO_LARGE: 413,
  PAYLOAD_TOO_DEEP: 400,
  PAYLOAD_NOT_JSON: 400,
  SESSION_BUSY: 409,
  QUEUE_FULL: 429,
  IDEMPOTENCY_CONFLICT: 422,
  NOT_WITHDRAWABLE: 409,
  NOT_RETRYABLE: 409,
  NOT_RUNNING: 409,
  SESSION_NOT_FOUND: 404,
  MESSAGE_NOT_FOUND: 404,
  KEY_NOT_FOUND: 404,
  MYSQL_UNAVAILABLE: 503,
  REDIS_UNAVAILABLE: 503,
  OUTCOME_UNKNOWN: 503,
  MIGRATION_PENDING: 503,
  CLOSED: 503,
  // Raised within turns and streams, which are not what a request waits for.
  TURN_STOPPED: 500,
  TURN_TIMEOUT: 500,
  TURN_HANDED_OVER: 500,
  TURN_LOST: 500,
  TURN_ENDED: 500,
  WATCHER_CUT_OFF: 500,
}

/** Said instead of what the library says, which may name servers. */
const UNAVAILABLE: Partial<Record<ErrorCode, string>> = {
  MYSQL_UNAVAILABLE: 'The database does not answer. Nothing was written: try again.',
  REDIS_UNAVAILABLE: 'Redis does not answer. Nothing was written: try again.',
  OUTCOME_UNKNOWN:
    'The database did not say whether it has written this. Repeat the request with the same Idempotency-Key: it is then one message.',
  MIGRATION_PENDING: 'The database is being prepared: try again later.',
  CLOSED: 'This server is going away: ask another one.',
}

/** Anything that was thrown, as what is answered. `onUnforeseen` gets what has no code, with its number. */
export function toRefusal(error: unknown, onUnforeseen: (error: unknown, id: string) => void): Refusal {
  if (error instanceof Refusal) return error
  const status = error instanceof ButlerError ? STATUS[error.code] : 500
  if (!(error instanceof ButlerError) || status === 500) {
    const id = nanoid(12)
    onUnforeseen(error, id)
    return new Refusal(500, 'INTERNAL', `Something failed here. The log of this server knows it as ${id}.`)
  }
  const { code, message } = error
  if (code === 'SESSION_NOT_FOUND') return noSuchSession()
  if (error instanceof UnavailableError || status === 503)
    return new Refusal(status, code, UNAVAILABLE[code] ?? 'Try again later.', {
      'retry-after': RETRY_AFTER.UNAVAILABLE,
    })
  return new Refusal(status, code, message, status === 429 ? { 'retry-after': RETRY_AFTER.QUEUE_FULL } : {})
}

/** Too many of something: try again soon. */
export const overloaded = (what: string) =>
  new Refusal(503, 'OVERLOADED', `This server has too many ${what}: try again, or ask another one.`, {
    'retry-after': RETRY_AFTER.OVERLOADED,
  })

/** Of a stream on a server that is about to end. */
export const draining = () =>
  new Refusal(503, 'DRAINING', 'This server is going away: ask another one.', {
    'retry-after': RETRY_AFTER.DRAINING,
  })

export function toResponse({ status, code, message, headers }: Refusal): Response {
  const body = { type: 'about:blank', title: TITLES[status] ?? 'Error', status, code, detail: message }
  return Response.json(body, { status, headers: { ...headers, 'content-type': 'application/problem+json' } })
}

const TITLES: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'Not Found',
  405: 'Method Not Allowed',
  409: 'Conflict',
  413: 'Content Too Large',
  415: 'Unsupported Media Type',
  422: 'Unprocessable Content',
  429: 'Too Many Requests',
  500: 'Internal Server Error',
  503: 'Service Unavailable',
}
