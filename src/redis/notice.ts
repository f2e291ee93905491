/** The text of notifications between processes; see `wake.ts`. */

export const wakeNotice = (ids: readonly string[]): string => `wake ${ids.join(' ')}`
