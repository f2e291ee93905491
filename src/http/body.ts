/** Reads a request's JSON, and no more of it than it may have. */
import { Refusal } from './refusal.ts'

const JSON_TYPE = /^application\/json\s*(?:;\s*charset="?utf-8"?\s*)?$/i

/** @throws Refusal 413, 415, 400 INVALID_BODY. */
export async function readJson(request: Request, maxBytes: number): Promise<unknown> {
  const { headers } = request
  if (!JSON_TYPE.test(headers.get('content-type') ?? ''))
    throw new Refusal(
      415,
      'UNSUPPORTED_MEDIA_TYPE',
      'Send JSON in UTF-8, with content-type: application/json.',
    )
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
  try {
    for await (const chunk of (body ?? []) as AsyncIterable<Uint8Array>) {
      length += chunk.byteLength
      if (length > maxBytes) throw tooLarge()
      chunks.push(chunk)
    }
  } catch (error) {
    if (error instanceof Refusal) throw error
    // Whoever sent it has gone, or was too slow.
    throw new Refusal(400, 'INVALID_BODY', 'The body did not arrive whole.')
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
