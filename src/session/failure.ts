/** What a handler threw, as JSON text for the transcript: handlers throw anything, and some of it cannot be printed. */

const TEXT_MAX = 2000

export function asErrorText(error: unknown): string {
  const { name, message, code } = describe(error)
  const cut = (text: string) => (text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}…` : text)
  return JSON.stringify({
    name: cut(name),
    message: cut(message),
    ...(code === undefined ? {} : { code: cut(code) }),
  })
}

function describe(error: unknown): { name: string; message: string; code?: string } {
  try {
    if (error instanceof Error) {
      const code: unknown = 'code' in error ? error.code : undefined
      return { name: error.name, message: error.message, ...(typeof code === 'string' ? { code } : {}) }
    }
    return { name: 'Error', message: `The handler threw ${typeof error}: ${String(error)}` }
  } catch {
    return { name: 'Error', message: 'The handler threw something that cannot be printed.' }
  }
}
