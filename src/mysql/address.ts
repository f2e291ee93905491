/**
 * Reads a MySQL URL. Called by `connect.ts`. Nothing of the URL is repeated in an error, because it holds a password;
 * an unknown parameter is refused, because a misspelt TLS option must not silently mean "no TLS".
 */
import type { PoolOptions } from 'mysql2'
import { InvalidInputError } from '../base/errors.ts'

export type MysqlAddress = Pick<PoolOptions, 'host' | 'port' | 'user' | 'password' | 'database' | 'ssl'>

const EXAMPLE = 'mysql://user:password@localhost:3306/app'

/**
 * `mysql://` or `mariadb://`, user, password, host, port (default 3306) and database; percent-encode what is special.
 * TLS: `?ssl=true` (certificate and host name verified; own CAs through NODE_EXTRA_CA_CERTS), `?ssl={"ca":"…"}` (mysql2's
 * TLS options as JSON), or `?ssl-mode=` `disabled`, `required` (encrypted, not verified), `verify_ca`, `verify_identity`.
 */
export function parseMysqlUrl(text: string): MysqlAddress {
  let url: URL
  try {
    url = new URL(text)
  } catch {
    throw invalid(
      'is not a URL; percent-encode special characters in the password (# is %23, / is %2F, @ is %40)',
    )
  }
  if (url.protocol !== 'mysql:' && url.protocol !== 'mariadb:')
    throw invalid('must begin with mysql:// or mariadb://')
  const host = decoded(url.hostname).replace(/^\[(.*)\]$/, '$1')
  const database = decoded(url.pathname.slice(1))
  if (!host) throw invalid('names no host')
  if (!database || database.includes('/')) throw invalid('must name one database after the host')
  if (url.hash) throw invalid('contains a #; write it as %23')
  const ssl = tlsOf(url.searchParams)
  return {
    host,
    port: url.port ? Number(url.port) : 3306,
    database,
    ...(url.username && { user: decoded(url.username) }),
    ...(url.password && { password: decoded(url.password) }),
    ...(ssl && { ssl }),
  }
}

type Tls = Exclude<PoolOptions['ssl'], string | undefined>

const VERIFIED: Tls = { rejectUnauthorized: true, verifyIdentity: true }

const MODES: Record<string, Tls | undefined> = {
  disabled: undefined,
  required: { rejectUnauthorized: false },
  verify_ca: { rejectUnauthorized: true },
  verify_identity: VERIFIED,
}

function tlsOf(parameters: URLSearchParams): Tls | undefined {
  let tls: Tls | undefined
  for (const [name, value] of parameters) {
    if (name === 'ssl') tls = tlsFromSwitch(value)
    else if (name === 'ssl-mode' || name === 'sslmode') tls = tlsFromMode(value)
    else throw invalid(`has the unknown parameter ${JSON.stringify(name)}; known are ssl and ssl-mode`)
  }
  return tls && { ...tls }
}

function tlsFromSwitch(value: string): Tls | undefined {
  if (value === 'true' || value === '1') return VERIFIED
  if (value === 'false' || value === '0') return undefined
  try {
    const parsed: unknown = JSON.parse(value)
    if (typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed)) return parsed
  } catch {
    // said below
  }
  throw invalid('has an ssl parameter that is neither true nor false nor a JSON object')
}

function tlsFromMode(value: string): Tls | undefined {
  const mode = value.toLowerCase().replace('-', '_')
  if (Object.hasOwn(MODES, mode)) return MODES[mode]
  throw invalid(`has an unknown ssl-mode; known are ${Object.keys(MODES).join(', ')}`)
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    throw invalid('has a % that begins no escape; write % as %25')
  }
}

const invalid = (problem: string) =>
  new InvalidInputError('INVALID_OPTIONS', `The MySQL URL ${problem}. Example: ${EXAMPLE}`)
