// A client that may say anything on a connection, also what no client would.
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'

export interface Raw {
  readonly socket: Socket
  /** Everything that was heard. */
  readonly heard: () => string
  /** Resolves with it when the server has closed the connection. */
  readonly closed: Promise<string>
}

export async function raw(url: string, text: string | Buffer = ''): Promise<Raw> {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  let heard = ''
  socket.on('data', (chunk) => (heard += chunk.toString('latin1')))
  // A server that closes while it is still being told resets the connection.
  socket.on('error', () => undefined)
  const closed = new Promise<string>((resolve) => socket.on('close', () => resolve(heard)))
  await once(socket, 'connect')
  socket.write(text)
  return { socket, heard: () => heard, closed }
}

export const head = (lines: readonly string[]): string => [...lines, '', ''].join('\r\n')
