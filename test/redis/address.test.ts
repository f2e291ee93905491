import { expect, test } from 'vitest'
import { InvalidInputError } from '../../src/base/errors.ts'
import { parseRedisUrl } from '../../src/redis/address.ts'

test.each([
  ['redis://localhost', { host: 'localhost', port: 6379, db: 0 }],
  ['redis://127.0.0.1:6400/3', { host: '127.0.0.1', port: 6400, db: 3 }],
  ['redis://127.0.0.1:6400/', { host: '127.0.0.1', port: 6400, db: 0 }],
  ['redis://h?db=2&family=6', { host: 'h', port: 6379, db: 2, family: 6 }],
  ['redis://[::1]:6400', { host: '::1', port: 6400, db: 0 }],
  ['redis://:secret@h', { host: 'h', port: 6379, db: 0, password: 'secret' }],
  ['redis://user:p%40ss%2F%3A@h', { host: 'h', port: 6379, db: 0, username: 'user', password: 'p@ss/:' }],
  [
    'rediss://user:p:w@h:6380/1',
    { host: 'h', port: 6380, db: 1, username: 'user', password: 'p:w', tls: {} },
  ],
  [
    'redis+sentinel://a:26380,b/mymaster?db=4',
    {
      sentinels: [
        { host: 'a', port: 26380 },
        { host: 'b', port: 26379 },
      ],
      name: 'mymaster',
      db: 4,
    },
  ],
  [
    'rediss+sentinel://u:p@a/m/2?sentinelUsername=su&sentinelPassword=s%26p',
    {
      sentinels: [{ host: 'a', port: 26379 }],
      name: 'm',
      db: 2,
      username: 'u',
      password: 'p',
      sentinelUsername: 'su',
      sentinelPassword: 's&p',
      tls: {},
      sentinelTLS: {},
      enableTLSForSentinelMode: true,
    },
  ],
])('reads %s', (url, options) => {
  expect(parseRedisUrl(url)).toEqual(options)
})

test.each([
  ['', 'must begin with'],
  ['localhost:6379', 'must begin with'],
  ['http://u:hunter2@h', 'must begin with'],
  ['redis://', 'host or port'],
  ['redis://u:hunter2@h:port', 'host or port'],
  ['redis://u:hunter2@h:70000', 'host or port'],
  ['redis://u:hunter2@h:0', 'host or port'],
  ['redis://u:hunter2/x@h', 'part too many'],
  ['redis://u:hunter2@x@h', 'part too many'],
  ['redis://u:hunter2#x@h', 'part too many'],
  ['redis://u:hunter2%zz@h', 'hexadecimal'],
  ['redis://u:hunter2@h/abc', 'database number'],
  ['redis://u:hunter2@h/1/2', 'too many parts'],
  ['redis://u:hunter2@h?dbb=1', 'parameter other than db, family'],
  ['redis://u:hunter2@a,b', 'several hosts'],
  ['redis+sentinel://u:hunter2@a:1,b:2', 'Sentinel group'],
])('refuses %s without showing the password', (url, why) => {
  const attempt = () => parseRedisUrl(url)
  expect(attempt).toThrow(InvalidInputError)
  expect(attempt).toThrow(why)
  expect(attempt).toThrow('redis://localhost:6379/0')
  expect(attempt).not.toThrow('hunter2')
})
