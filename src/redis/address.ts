/**
 * A Redis URL in words that ioredis understands: one server, TLS, or Sentinel. Called by `connect.ts`. Parsed
 * here rather than by ioredis because a typing error must become an error that helps, and no error may show a
 * password.
 */
import type { RedisOptions } from 'ioredis'
import { InvalidInputError } from '../base/errors.ts'

const SHAPE = /^(rediss?)(\+sentinel)?:\/\/(?:([^@/?#]*)@)?([^@/?#]*)(\/[^@?#]*)?(?:\?([^@#]*))?$/i
const HOST = /^(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?$/
const NUMBER = /^[0-9]{1,5}$/

interface Host {
  host: string
  port: number
}

/**
 * Reads `redis://user:password@host:6379/0`, `rediss://…` (TLS) and
 * `redis+sentinel://user:password@host1:26379,host2:26379/mymaster?db=0` (`rediss+sentinel://` with TLS; the
 * Sentinels' own login as `?sentinelUsername=…&sentinelPassword=…`).
 * Throws {@link InvalidInputError} `INVALID_OPTIONS` on anything else.
 */
export function parseRedisUrl(url: string): RedisOptions {
  const match = SHAPE.exec(url)
  if (!match) {
    throw refuse(
      /^rediss?(\+sentinel)?:\/\//i.test(url)
        ? 'it has a part too many (percent-encode / ? # and @ in a user name or password)'
        : 'it must begin with redis:// or rediss://',
    )
  }
  const [, scheme = '', sentinel, login = '', hostList = '', path = '', queryText = ''] = match
  const query = readQuery(queryText, sentinel !== undefined)
  const segments = path.split('/').filter((segment) => segment !== '')
  const hosts = hostList.split(',').map((text) => readHost(text, sentinel ? 26_379 : 6_379))
  const [first] = hosts
  if (!first) throw refuse('it names no host')
  const name = sentinel ? segments.shift() : undefined
  if (segments.length > 1) throw refuse('its path has too many parts')
  const options: RedisOptions = {
    ...readLogin(login),
    db: readNumber(query.get('db') ?? segments[0] ?? '0', 'the database number'),
    ...(scheme.toLowerCase() === 'rediss' && { tls: {} }),
  }
  if (query.has('family')) options.family = readNumber(query.get('family') ?? '', 'family')
  if (!sentinel) {
    if (hosts.length > 1)
      throw refuse('it names several hosts: use redis+sentinel://, or pass an ioredis Cluster')
    return { ...options, ...first }
  }
  if (!name) throw refuse('it does not name the Sentinel group after the hosts')
  const sentinelUsername = query.get('sentinelUsername')
  const sentinelPassword = query.get('sentinelPassword')
  return {
    ...options,
    sentinels: hosts,
    name: decode(name),
    ...(sentinelUsername !== null && { sentinelUsername }),
    ...(sentinelPassword !== null && { sentinelPassword }),
    ...(options.tls && { enableTLSForSentinelMode: true, sentinelTLS: {} }),
  }
}

function readHost(text: string, defaultPort: number): Host {
  const match = HOST.exec(text)
  const host = match?.[1] ?? match?.[2]
  const port = Number(match?.[3] ?? defaultPort)
  if (host === undefined || port < 1 || port > 65_535) {
    throw refuse('a host or port in it is not valid (percent-encode special characters in a password)')
  }
  return { host, port }
}

function readLogin(text: string): Pick<RedisOptions, 'username' | 'password'> {
  if (text === '') return {}
  const colon = text.indexOf(':')
  const username = decode(colon === -1 ? text : text.slice(0, colon))
  const password = colon === -1 ? '' : decode(text.slice(colon + 1))
  return { ...(username !== '' && { username }), ...(password !== '' && { password }) }
}

/** Unknown parameters are refused: a misspelt one that is ignored would be found in production. */
function readQuery(text: string, sentinel: boolean): URLSearchParams {
  const query = new URLSearchParams(text)
  const known = ['db', 'family', ...(sentinel ? ['sentinelUsername', 'sentinelPassword'] : [])]
  for (const name of query.keys()) {
    if (!known.includes(name)) throw refuse(`it has a parameter other than ${known.join(', ')}`)
  }
  return query
}

function readNumber(text: string, what: string): number {
  if (NUMBER.test(text)) return Number(text)
  throw refuse(`${what} in it is not a number`)
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw refuse('a % in it is not followed by two hexadecimal digits (write %25 for a % sign)')
  }
}

/** Nothing of the URL itself is repeated: where it is malformed, any part may be the password. */
function refuse(why: string): InvalidInputError {
  return new InvalidInputError(
    'INVALID_OPTIONS',
    `The Redis URL cannot be used: ${why}. Examples: redis://localhost:6379/0, ` +
      'rediss://user:password@host:6380, redis+sentinel://host1:26379,host2:26379/mymaster?db=0.',
  )
}
