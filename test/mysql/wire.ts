// A TCP relay in front of a MySQL server that sees what the client says, so that a test can act at one exact statement:
// swallow it, or let it through and cut the line before the answer.
import { createServer, connect, type AddressInfo, type Socket } from 'node:net'

export interface Wire {
  readonly url: string
  close(): void
}

/** `act` sees every chunk from the client; what it returns is done with that chunk. */
export async function wireTo(
  serverUrl: string,
  act: (text: string) => 'pass' | 'swallow' | 'pass, then cut',
): Promise<Wire> {
  const target = new URL(serverUrl)
  const sockets = new Set<Socket>()
  const server = createServer((client) => {
    const upstream = connect(Number(target.port), target.hostname)
    let isCut = false
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.on('error', () => undefined)
    }
    client.on('data', (chunk) => {
      const action = act(chunk.toString('latin1'))
      if (action === 'swallow') return
      isCut ||= action === 'pass, then cut'
      upstream.write(chunk)
    })
    upstream.on('data', (chunk) => {
      if (isCut) client.destroy()
      else client.write(chunk)
    })
    client.on('close', () => upstream.end())
    upstream.on('close', () => client.destroy())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const url = new URL(serverUrl)
  url.port = `${(server.address() as AddressInfo).port}`
  return {
    url: url.href,
    close: () => {
      for (const socket of sockets) socket.destroy()
      server.close()
    },
  }
}
