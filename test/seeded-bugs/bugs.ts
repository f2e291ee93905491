// The deliberate faults: at least one for every rule of design and code that no reader would miss at once. Grouped by
// the layer they are planted in, cheapest tests first.
import type { Bug } from './bug.ts'
import { protocolBugs } from './protocol-bugs.ts'
import { redisBugs } from './redis-bugs.ts'
import { mysqlBugs } from './mysql-bugs.ts'
import { butlerBugs } from './butler-bugs.ts'
import { loopBugs } from './loop-bugs.ts'
import { serviceBugs } from './service-bugs.ts'

export const bugs: readonly Bug[] = [
  ...protocolBugs,
  ...redisBugs,
  ...mysqlBugs,
  ...butlerBugs,
  ...loopBugs,
  ...serviceBugs,
]
