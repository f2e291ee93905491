/** Reads a request's JSON, and no more of it than it may have. */
import { Refusal } from './refusal.ts'

/** @throws Refusal 413, 415, 400 INVALID_BODY. */
export async function readJson(request: Request, maxBytes: number): Promise<unknown> {
  const { headers } = request
  const type = headers.get('content-type')?.split(';')[0]?.trim().toLowerCase()
  if (type !== 'application/json')
    throw new Refusal(415, 'UNSUPPORTED_MEDIA_TYPE', 'Send JSON, with content-type: application/json.')
  if ((headers.get('content-encoding') ?? 'identity') !== 'identity')
    throw new Refusal(415, 'UNSUPPORTED_MEDIA_TYPE', 'Send the body as it is, without a content-encoding.')
  const text = decode(await readBytes(request, maxBytes))
  try {
    return JSON.parse(text) as unknown
  } catch {
    throw new Refusal(400, 'INVALID_BODY', 'The body is not JSON.')
  }
}

async function readBytes({ headers, body }: Request, maxBytes: number): Promise<Buffer> {
  const tooLarge = () => new Refusal(413, 'BODY_TOO_LARGE', `The body is longer than ${maxBytes} bytes.`)
  if (Number(headers.get('content-length') ?? 0) > maxBytes) throw tooLarge()
  const chunks: Uint8Array[] = []
  let length = 0
  if (body) {
    for await (const chunk of body as unknown as AsyncIterable<Uint8Array>) {
      length += chunk.byteLength
      if (length > maxBytes) throw tooLarge()
      chunks.push(chunk)
    }
  }
  return Buffer.concat(chunks)
}

function decode(bytes: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw new Refusal(400, 'INVALID_BODY', 'The body is not UTF-8.')
  }
}
