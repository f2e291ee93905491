// The record of the last full run, in the repository: which fault was caught, by which test, after how long.

export interface Finding {
  readonly bug: string
  readonly file: string
  /** Undefined: nothing noticed it. */
  readonly caughtBy: { readonly test: string; readonly title: string } | undefined
  readonly seconds: number
}

export function toMarkdown(findings: readonly Finding[]): string {
  const caught = findings.filter(({ caughtBy }) => caughtBy).length
  const cell = (text: string) => text.replaceAll('|', '\\|')
  const rows = findings.map(({ bug, file, caughtBy, seconds }) => {
    const by = caughtBy ? `\`${caughtBy.test}\`: ${cell(caughtBy.title)}` : '**nothing**'
    return `| ${cell(bug)} | \`${file}\` | ${by} | ${seconds.toFixed(0)} |`
  })
  return [
    '# Seeded bugs',
    '',
    `Written by \`npm run seeded-bugs\`. ${caught} of ${findings.length} faults were caught.`,
    '',
    '| fault | in `src/` | caught by | seconds |',
    '| --- | --- | --- | --- |',
    ...rows,
    '',
  ].join('\n')
}
