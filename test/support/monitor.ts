// Every command that a Redis executes, as text lines, from now until `end()`. Over a plain socket, because a client
// library takes the first line that comes before MONITOR's own answer for a protocol error.
import { connect } from 'node:net'

export interface Monitor {
  readonly lines: () => string[]
  end(): void
}

export async function monitorOf(redisUrl: string): Promise<Monitor> {
  const { hostname, port } = new URL(redisUrl)
  const socket = connect(Number(port), hostname)
  let text = ''
  await new Promise<void>((resolve, reject) => {
    socket.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk
      if (text.includes('+OK')) resolve()
    })
    socket.once('error', reject)
    socket.write('MONITOR\r\n')
  })
  return {
    lines: () => text.split('\r\n').filter((line) => line !== '' && line !== '+OK'),
    end: () => void socket.destroy(),
  }
}
