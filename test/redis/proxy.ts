// A TCP proxy in front of a server: cut connections, or let them look healthy while nothing gets through.
import { createServer, connect, type AddressInfo, type Socket } from 'node:net'

export interface Proxy {
  port: number
  /** Nothing passes on the connections that exist now; new ones work. */
  blackhole(): void
  /** Ends every connection. */
  cut(): void
  close(): Promise<void>
}

export async function startProxy(targetPort: number): Promise<Proxy> {
  const pairs = new Set<[Socket, Socket]>()
  const server = createServer((near) => {
    const far = connect(targetPort, '127.0.0.1')
    const pair: [Socket, Socket] = [near, far]
    pairs.add(pair)
    near.pipe(far)
    far.pipe(near)
    for (const socket of pair) {
      socket.on('error', () => undefined)
      socket.on('close', () => {
        near.destroy()
        far.destroy()
        pairs.delete(pair)
      })
    }
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    port: (server.address() as AddressInfo).port,
    blackhole: () => {
      for (const [near, far] of pairs) {
        near.unpipe(far)
        far.unpipe(near)
        near.resume()
        far.resume()
      }
    },
    cut: () => {
      for (const pair of pairs) for (const socket of pair) socket.destroy()
    },
    close: async () => {
      for (const pair of pairs) for (const socket of pair) socket.destroy()
      await new Promise<void>((resolve) => server.close(() => resolve()))
    },
  }
}
