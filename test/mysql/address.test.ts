// address.ts: what a MySQL URL may say, and that a wrong one is explained without its password.
import { expect, test } from 'vitest'
import { parseMysqlUrl } from '../../src/mysql/address.ts'

test('a URL is read whole', () => {
  expect(parseMysqlUrl('mysql://us%40er:p%23w%2F@db.example:3307/app')).toEqual({
    host: 'db.example',
    port: 3307,
    user: 'us@er',
    password: 'p#w/',
    database: 'app',
  })
  expect(parseMysqlUrl('mariadb://[::1]/app')).toEqual({ host: '::1', port: 3306, database: 'app' })
  expect(parseMysqlUrl('mysql://h/app?ssl=true').ssl).toEqual({
    rejectUnauthorized: true,
    verifyIdentity: true,
  })
  expect(parseMysqlUrl('mysql://h/app?ssl=false').ssl).toBeUndefined()
  expect(parseMysqlUrl('mysql://h/app?ssl-mode=REQUIRED').ssl).toEqual({ rejectUnauthorized: false })
  expect(parseMysqlUrl(`mysql://h/app?ssl=${encodeURIComponent('{"ca":"x"}')}`).ssl).toEqual({ ca: 'x' })
})

test.each([
  'localhost:3306',
  'postgres://user:SECRET@localhost/app',
  'mysql://user:SECRET#more@localhost/app',
  'mysql://user:SECRET/more@localhost/app',
  'mysql://user:%SECRET@localhost/app',
  'mysql://user:SECRET@localhost',
  'mysql://user:SECRET@localhost/',
  'mysql://user:SECRET@localhost/app?ssl-mod=required',
  'mysql://user:SECRET@localhost/app?ssl-mode=sometimes',
  'mysql://user:SECRET@localhost/app?ssl=perhaps',
  'mysql://user:SECRET@localhost/app?ssl=[1]',
])('%s is refused with an example and without the password', (url) => {
  const attempt = () => parseMysqlUrl(url)
  expect(attempt).toThrow(expect.objectContaining({ code: 'INVALID_OPTIONS' }))
  expect(attempt).toThrow(/mysql:\/\/user:password@localhost:3306\/app/)
  expect(attempt).not.toThrow(/SECRET/)
})
