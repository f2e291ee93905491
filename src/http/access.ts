/**
 * Who is asking, and what that one may do. A key may do its scopes to the sessions of its tenants; a session token its
 * rights to one session. Keys come from a keyring in the database, tokens are signed with a secret that all servers
 * share. A tenant is the part of a session id before its first colon, compared whole; an id without one belongs to the
 * tenant ''.
 */
import { jwtVerify, SignJWT } from 'jose'
import { InvalidInputError, type Keyring, type Scope } from '../index.ts'
import { Refusal, unauthenticated } from './refusal.ts'

export type Right = Scope

export interface Principal {
  /** For the log: a key's id, or `token`. */
  readonly name: string
  readonly rights: ReadonlySet<Right>
  /** Whose sessions it may see; a token sees one session only. */
  readonly tenants: readonly string[] | 'all'
  readonly session?: string
  /** When it is over, milliseconds since 1970. */
  readonly expiresAt?: number
}

export interface Access {
  /** @throws Refusal 401; UnavailableError when the keyring's database does not answer. */
  identify(headers: Headers): Promise<Principal>
  /** Undefined: this server has no secret to sign with. */
  readonly tokens: SessionTokens | undefined
}

export const tenantOf = (sessionId: string): string => {
  const end = sessionId.indexOf(':')
  return end === -1 ? '' : sessionId.slice(0, end)
}

export function covers({ session, tenants }: Principal, sessionId: string): boolean {
  if (session !== undefined) return session === sessionId
  return tenants === 'all' || tenants.includes(tenantOf(sessionId))
}

/** Everybody may do everything: where something in front of it has asked already. */
export const openAccess = (tokens?: SessionTokens): Access => ({
  tokens,
  identify: () =>
    Promise.resolve({
      name: 'anybody',
      rights: new Set(['produce', 'watch', 'stop', 'admin']),
      tenants: 'all',
    }),
})

/**
 * The same for a server without keys on a loopback address. Browsers of this machine reach it too, on behalf of any page:
 * so what comes by another name (a name can be made to point here) or from a page of another origin is refused.
 * `origins` are allowed all the same.
 */
export const localAccess = (tokens?: SessionTokens, origins: readonly string[] = []): Access => ({
  tokens,
  identify: async (headers) => {
    const host = headers.get('host') ?? ''
    const origin = headers.get('origin')
    const isOwn = origin === null || origin === `http://${host}` || origins.includes(origin)
    if (!isOwn || !LOCAL_HOST.test(host))
      throw new Refusal(
        403,
        'FORBIDDEN',
        'Without keys this server answers programs of its own machine only.',
      )
    return openAccess(tokens).identify(headers)
  },
})

const LOCAL_HOST = /^(?:127(?:\.\d{1,3}){3}|\[::1\]|localhost)(?::\d{1,5})?$/i

export const keyAccess = (keyring: Keyring, tokens?: SessionTokens): Access => ({
  tokens,
  identify: async (headers) => {
    const secret = /^Bearer ([\w.~+/-]{1,4096})$/i.exec(headers.get('authorization') ?? '')?.[1]
    if (secret === undefined) throw unauthenticated()
    const isKey = secret.startsWith('bk_')
    const principal = isKey ? await fromKey(keyring, secret) : await tokens?.verify(secret)
    if (!principal) throw unauthenticated()
    return principal
  },
})

async function fromKey(keyring: Keyring, secret: string): Promise<Principal | undefined> {
  const key = await keyring.verify(secret)
  return key && { name: key.id, rights: new Set(key.scopes), tenants: key.tenants }
}

const ISSUER = 'butler'
const AUDIENCE = 'butler/session'
const SECRET_MIN_BYTES = 32
/** Longest life of a session token, in seconds. */
export const TOKEN_MAX_SECONDS = 3600

/** What a session token may give. */
export const TOKEN_RIGHTS = ['produce', 'watch', 'stop'] as const
export type TokenRight = (typeof TOKEN_RIGHTS)[number]

/** Signs and checks short-lived tokens for browsers: one session, some rights, an end. */
export class SessionTokens {
  readonly #key: Uint8Array

  /** `secret`: at least 32 bytes, the same on all servers. Throws InvalidInputError INVALID_OPTIONS. */
  constructor(secret: string) {
    this.#key = new TextEncoder().encode(secret)
    if (this.#key.byteLength < SECRET_MIN_BYTES)
      throw new InvalidInputError(
        'INVALID_OPTIONS',
        `The secret of session tokens has ${this.#key.byteLength} bytes: use at least ${SECRET_MIN_BYTES} random ones, such as from: openssl rand -base64 48`,
      )
  }

  async sign(
    session: string,
    rights: readonly TokenRight[],
    ttlSeconds: number,
  ): Promise<{ token: string; expiresAt: string }> {
    const expires = Math.floor(Date.now() / 1000) + ttlSeconds
    const token = await new SignJWT({ session, rights })
      .setProtectedHeader({ alg: 'HS256' })
      .setIssuer(ISSUER)
      .setAudience(AUDIENCE)
      .setIssuedAt()
      .setExpirationTime(expires)
      .sign(this.#key)
    return { token, expiresAt: new Date(expires * 1000).toISOString() }
  }

  /** Undefined: not ours, changed, or over. */
  async verify(token: string): Promise<Principal | undefined> {
    try {
      const { payload } = await jwtVerify(token, this.#key, {
        algorithms: ['HS256'],
        issuer: ISSUER,
        audience: AUDIENCE,
        requiredClaims: ['exp', 'session', 'rights'],
      })
      const { session, rights, exp } = payload as { session?: unknown; rights?: unknown; exp?: number }
      if (typeof session !== 'string' || !Array.isArray(rights) || exp === undefined) return undefined
      const known = TOKEN_RIGHTS.filter((right) => rights.includes(right))
      return { name: 'token', rights: new Set(known), tenants: [], session, expiresAt: exp * 1000 }
    } catch {
      return undefined
    }
  }
}
