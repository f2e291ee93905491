// Keys of the service: shown once, kept as a hash, over when they are revoked or expired, whatever a server remembers.
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { type KeyOptions, openKeyring, type Keyring } from '../../src/index.ts'
import { freshDatabase } from '../support/services.ts'
import { eventually, openWorld, type World } from '../traps/world.ts'

let world: World
const keyrings: Keyring[] = []
beforeAll(async () => {
  world = await openWorld()
})
afterEach(async () => {
  vi.restoreAllMocks()
  await Promise.all(keyrings.splice(0).map((keyring) => keyring.close()))
})
afterAll(() => world.close())

/** A server's, with a memory of its own. */
function open(url = world.mysqlUrl): Keyring {
  const keyring = openKeyring(url)
  keyrings.push(keyring)
  return keyring
}

const options: KeyOptions = { name: 'web', scopes: ['produce'] }

/** Lets the clock of this process jump; what was remembered before is as old as that. */
function later(ms: number): void {
  const clock = performance.now.bind(performance)
  vi.spyOn(performance, 'now').mockImplementation(() => clock() + ms)
}

test('a secret is shown once and is nowhere in the database', async () => {
  const keyring = open()
  const { id, secret } = await keyring.create({ name: 'Büro 1', scopes: ['watch', 'stop', 'watch'] })
  expect(secret).toMatch(new RegExp(`^bk_${id}_[A-Za-z0-9]{32}$`))
  expect(await keyring.verify(secret)).toEqual({ id, scopes: ['watch', 'stop'], tenants: 'all' })
  const [row] = await world.rows<Record<string, unknown>>('select * from butler_keys where id = ?', [id])
  expect(JSON.stringify(row)).not.toContain(secret.slice(-32))
  const listed = (await keyring.list()).find((key) => key.id === id)
  expect(listed).toMatchObject({ name: 'Büro 1', tenants: 'all', expiresAt: null, revokedAt: null })
  expect(JSON.stringify(listed)).not.toMatch(/hash|[0-9a-f]{64}/)
  const other = await keyring.create({ ...options, tenants: ['acme', '', 'acme'] })
  expect(await keyring.verify(other.secret)).toMatchObject({ tenants: ['acme', ''] })
})

test('nothing but the whole secret will do', async () => {
  const keyring = open()
  const { id, secret } = await keyring.create(options)
  const end = secret.endsWith('a') ? 'b' : 'a'
  const other = await keyring.create(options)
  const wrong = [
    secret.slice(0, -1) + end,
    secret.slice(0, -1),
    `${secret}\n`,
    ` ${secret}`,
    secret.toUpperCase(),
    `bk_${id}_${other.secret.slice(-32)}`,
    `bk_${'x'.repeat(12)}_${secret.slice(-32)}`,
    `bk_${id}_`,
    id,
    '',
    `bk_${id}_${"' or 1=1 -- ".padEnd(32, 'x')}`,
    'x'.repeat(100_000),
  ]
  expect(await Promise.all(wrong.map((one) => keyring.verify(one)))).toEqual(wrong.map(() => undefined))
  for (const one of [undefined, null, 1, {}])
    expect(await keyring.verify(one as unknown as string)).toBeUndefined()
  expect(await keyring.verify(secret)).toMatchObject({ id })
})

test('a revoked key is refused here at once, and everywhere within five seconds', async () => {
  const [here, there] = [open(), open()]
  const { id, secret } = await here.create(options)
  await here.verify(secret)
  await there.verify(secret)
  await here.revoke(id)
  expect(await here.verify(secret)).toBeUndefined()
  // Remembered for a moment, which is what makes it cheap.
  expect(await there.verify(secret)).toMatchObject({ id })
  later(5000)
  expect(await there.verify(secret)).toBeUndefined()
  const [{ revoked_at: first }] = (await world.rows('select revoked_at from butler_keys where id = ?', [
    id,
  ])) as [{ revoked_at: Date }]
  await here.revoke(id)
  const listed = (await here.list()).find((key) => key.id === id)
  expect(listed?.revokedAt).toBe(first.toISOString())
})

test('an answer that was under way when the key was revoked is as old as its question', async () => {
  const line = await world.newLine(world.mysqlUrl)
  const [here, there] = [open(), open(line.url)]
  const { id, secret } = await here.create(options)
  await there.verify('bk_warmwarmwarm_warmwarmwarmwarmwarmwarmwarmwarm')
  const held = line.holdAnswer(/butler_keys/)
  const asked = there.verify(secret)
  await held.seen
  await here.revoke(id)
  held.release()
  expect(await asked).toMatchObject({ id })
  later(5000)
  expect(await there.verify(secret)).toBeUndefined()
})

test('a whole secret revokes its key, and no message repeats it', async () => {
  const keyring = open()
  const { secret } = await keyring.create(options)
  await keyring.revoke(secret)
  expect(await keyring.verify(secret)).toBeUndefined()
  const unknown = `bk_${'y'.repeat(12)}_${secret.slice(-32)}`
  for (const id of [unknown, 'y'.repeat(12), '', 'ключ', secret.slice(3), undefined]) {
    const error = await keyring.revoke(id as string).catch((reason: unknown) => reason)
    expect(error).toMatchObject({ name: 'NotFoundError', code: 'KEY_NOT_FOUND' })
    expect(String(error)).not.toContain(secret.slice(-32))
  }
})

test('when a key is over is asked of the database’s clock', async () => {
  const keyring = open()
  const { id, secret } = await keyring.create({ ...options, expiresInMs: 3_600_000 })
  const [{ ms }] = (await world.rows(
    'select timestampdiff(microsecond, created_at, expires_at) / 1000 ms from butler_keys where id = ?',
    [id],
  )) as [{ ms: string }]
  expect(Number(ms)).toBe(3_600_000)
  // A server whose own clock is years ahead or behind.
  for (const shift of [1, -1]) {
    const clock = Date.now.bind(Date)
    vi.spyOn(Date, 'now').mockImplementation(() => clock() + shift * 86_400_000 * 1000)
    expect(await open().verify(secret)).toMatchObject({ id })
    vi.restoreAllMocks()
  }
  await world.run('update butler_keys set expires_at = utc_timestamp(3) where id = ?', [id])
  expect(await open().verify(secret)).toBeUndefined()
  expect((await keyring.list()).find((key) => key.id === id)?.revokedAt).toBeNull()
})

test('its last use is known to the minute, and keeps nobody waiting', async () => {
  const { id, secret } = await open().create(options)
  const usedAt = async () => (await open().list()).find((key) => key.id === id)?.usedAt ?? null
  await open().verify(`bk_${id}_${'x'.repeat(32)}`)
  expect(await usedAt()).toBeNull()
  await open().verify(secret)
  await eventually(async () => (await usedAt()) !== null, 'the use is noted')
  await world.run('update butler_keys set used_at = utc_timestamp(3) - interval 50 second where id = ?', [id])
  const first = await usedAt()
  // Closing waits for what is under way.
  const again = open()
  await again.verify(secret)
  await again.close()
  expect(await usedAt()).toBe(first)
  await world.run('update butler_keys set used_at = utc_timestamp(3) - interval 70 second where id = ?', [id])
  const row = await world.admin.getConnection()
  await row.beginTransaction()
  await row.query('select id from butler_keys where id = ? for update', [id])
  expect(await open().verify(secret)).toMatchObject({ id })
  await world.lockWait('butler_keys')
  expect(await open().verify(secret)).toMatchObject({ id })
  await row.rollback()
  row.release()
  await eventually(async () => Date.now() - Date.parse((await usedAt()) ?? '') < 60_000, 'the use is noted')
})

test('a database that is away refuses nobody for good, and whoever was known is still let in for a moment', async () => {
  const line = await world.newLine(world.mysqlUrl)
  const keyring = open(line.url)
  const { id, secret } = await keyring.create(options)
  await keyring.verify(secret)
  line.down()
  const AWAY = { name: 'UnavailableError', code: 'MYSQL_UNAVAILABLE' }
  expect(await keyring.verify(secret)).toMatchObject({ id })
  await expect(keyring.verify(`bk_${id}_${'x'.repeat(32)}`)).rejects.toMatchObject(AWAY)
  later(5000)
  for (const call of [
    () => keyring.verify(secret),
    () => keyring.list(),
    () => keyring.revoke(id),
    () => keyring.create(options),
  ])
    await expect(call()).rejects.toMatchObject(AWAY)
  line.up()
  await eventually(
    () =>
      keyring.verify(secret).then(
        (key) => key?.id === id,
        () => false,
      ),
    'it is let in again',
  )
})

test('a database without the table says what is missing', async () => {
  const empty = await freshDatabase()
  await expect(open(empty.url).list()).rejects.toMatchObject({ code: 'MIGRATION_PENDING' })
  await keyrings.pop()?.close()
  await empty.drop()
})

test.each<[string, unknown]>([
  ['no options', undefined],
  ['an unknown option', { ...options, scope: 'produce' }],
  ['no name', { ...options, name: '' }],
  ['a name with a line end', { ...options, name: 'a\nb' }],
  ['a name that is too long', { ...options, name: 'x'.repeat(201) }],
  ['no scope', { ...options, scopes: [] }],
  ['a scope that is a text', { ...options, scopes: 'produce' }],
  ['an unknown scope', { ...options, scopes: ['produce', 'root'] }],
  ['a hole in its scopes', { ...options, scopes: Array(1) }],
  ['no tenant, which is not all of them', { ...options, tenants: [] }],
  ['null for tenants', { ...options, tenants: null }],
  ['a tenant with a colon', { ...options, tenants: ['acme:'] }],
  ['a tenant with a wildcard', { ...options, tenants: ['%'] }],
  ['too many tenants', { ...options, tenants: Array.from({ length: 101 }, (_, n) => `t${n}`) }],
  ['a life of no time', { ...options, expiresInMs: 0 }],
  ['a life of eleven years', { ...options, expiresInMs: 11 * 366 * 86_400_000 }],
])('a key is refused with %s, and nothing is written', async (_what, bad) => {
  const before = await world.rows('select count(*) from butler_keys')
  await expect(open().create(bad as KeyOptions)).rejects.toMatchObject({ name: 'InvalidInputError' })
  expect(await world.rows('select count(*) from butler_keys')).toEqual(before)
})
