/**
 * Probes: what can be asked of a port before anything is connected for good. Is it free, does a Redis or a MySQL answer
 * on it, is the database there. No clients, no retries beyond `until`.
 */
import { connect, createServer } from 'node:net'
import { createConnection } from 'mysql2/promise'
import { now, sleep } from '../base/timing.ts'

/**
 * Below the range from which systems take the ports of outgoing connections: a client that reconnects while its server
 * is down could otherwise be given that very port, connect to itself and keep the server from coming back.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 17_000 + Math.floor(Math.random() * 3_000)
    if (await isFree(port)) return port
  }
}

export function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer()
    probe.once('error', () => resolve(false))
    probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)))
  })
}

/** Asks until the answer is yes (true), or time is up or there is no point any more (false). */
export async function until(
  ask: () => Promise<boolean>,
  ms: number,
  pointless = () => false,
): Promise<boolean> {
  const deadline = now() + ms
  while (now() < deadline && !pointless()) {
    if (await ask()) return true
    await sleep(50)
  }
  return false
}

export function redisAnswers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.write('PING\r\n'))
    const settle = (answer: boolean) => {
      socket.destroy()
      resolve(answer)
    }
    socket.setTimeout(1_000, () => settle(false))
    socket.on('data', (reply) => settle(/^(\+PONG|-NOAUTH)/.test(reply.toString())))
    socket.on('error', () => settle(false))
    socket.on('close', () => settle(false))
  })
}

export const mysqlAnswers = (url: string): Promise<boolean> =>
  ensureDatabase(url).then(
    () => true,
    () => false,
  )

/** Creates the URL's database if there is none. An account that may only use an existing one is fine. */
export async function ensureDatabase(url: string): Promise<void> {
  const server = new URL(url)
  const database = decodeURIComponent(server.pathname.slice(1))
  if (!database) throw new Error('The MySQL URL names no database: mysql://user:password@host:3306/database')
  server.pathname = '/'
  const open = (uri: string) => createConnection({ uri, connectTimeout: 5_000 })
  const existing = await open(url).catch((error: { code?: string }) => {
    if (error.code !== 'ER_BAD_DB_ERROR') throw error
  })
  if (existing) return existing.end()
  const connection = await open(server.href)
  try {
    await connection.query('CREATE DATABASE IF NOT EXISTS ?? CHARACTER SET utf8mb4', [database])
  } finally {
    await connection.end()
  }
}
