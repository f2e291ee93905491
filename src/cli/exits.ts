/**
 * How a command ends: the exit code of every outcome, and what the user is told. 0 ok, 1 failed, 2 usage, 3 Redis or
 * MySQL cannot be reached, 4 not found, 5 conflict or refused, 130 and 143 interrupted.
 */
import { CommanderError } from 'commander'
import { ButlerError, InvalidInputError, NotFoundError, RefusedError, UnavailableError } from '../index.ts'

export const EXIT = { ok: 0, failed: 1, usage: 2, unreachable: 3, notFound: 4, refused: 5 } as const

/** The command line, or a file that it names, is wrong. */
export class UsageError extends Error {}

/** Ends the command with this code; what there is to say has been said, unless there is a message. */
export class ExitError extends Error {
  readonly exitCode: number

  constructor(exitCode: number, message = '') {
    super(message)
    this.exitCode = exitCode
  }
}

export function exitCodeOf(error: unknown): number {
  if (error instanceof ExitError) return error.exitCode
  // Help and version are no failures; everything else that commander throws is about usage.
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage
  if (error instanceof UsageError || error instanceof InvalidInputError) return EXIT.usage
  if (error instanceof NotFoundError) return EXIT.notFound
  if (error instanceof RefusedError) return EXIT.refused
  if (error instanceof UnavailableError) {
    return error.code === 'MIGRATION_PENDING' ? EXIT.failed : EXIT.unreachable
  }
  return isNetworkError(error) ? EXIT.unreachable : EXIT.failed
}

/** What to say about it; undefined when it has been said. Stacks only for what nobody foresaw, and on request. */
export function describeFailure(error: unknown, withStack: boolean): string | undefined {
  if (error instanceof CommanderError) return undefined
  if (error instanceof ButlerError) return `${error.code}: ${error.message}`
  if (error instanceof ExitError) return error.message || undefined
  if (!(error instanceof Error)) return String(error)
  if (withStack && !(error instanceof UsageError)) return error.stack ?? error.message
  // Node joins the failures for several addresses of one host and leaves the message empty.
  const { code = error.name } = error as { code?: string }
  return error.message || code
}

const NETWORK = /^(ECONN|EHOST|ENET|ETIMEDOUT|ENOTFOUND|EAI_AGAIN|ER_ACCESS_DENIED|ER_DBACCESS_DENIED)/

/** Raised while looking for servers, before there is a client that would give it a name. */
function isNetworkError(error: unknown): boolean {
  const { code } = Object(error) as { code?: unknown }
  return typeof code === 'string' && NETWORK.test(code)
}
