// `npm run docs`: the pages of docs/ and the API from index.d.ts as a static site in site/. A warning of TypeDoc (something public
// without a comment, a link to nothing) and a link of the built site that leads nowhere are errors.

import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { basename, join, relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { Application, Converter, DocumentReflection, KindRouter } from 'typedoc'
import { commandLine } from './command-line.mjs'

commandLine()

const root = fileURLToPath(new URL('..', import.meta.url))
const site = join(root, 'site')

/** The pages in the order of the menu. Others of docs/ follow. */
const PAGES = {
  Guide: ['getting-started', 'concepts', 'performance', 'errors', 'environment', 'ops', 'host', 'reliability'],
  'Where it runs': ['ascend', 'electron', 'runtimes', 'bundlers', 'stand-in'],
  Inside: ['ARCHITECTURE', 'mission', 'unsafe'],
}
const found = readdirSync(join(root, 'docs')).filter((name) => name.endsWith('.md')).map((name) => name.slice(0, -3))
const listed = Object.values(PAGES).flat()
PAGES.Inside.push(...found.filter((name) => !listed.includes(name)))
const documents = Object.entries(PAGES).flatMap(([group, names]) =>
  names.filter((name) => found.includes(name)).map((name) => ({ group, path: join(root, 'docs', `${name}.md`) })),
)
for (const name of ['CONTRIBUTING.md', 'CHANGELOG.md']) documents.push({ group: 'Inside', path: join(root, name) })
for (const name of ['README.zh-CN.md']) if (existsSync(join(root, name))) documents.unshift({ group: 'Guide', path: join(root, name) })

/** A page is called what its first heading says. */
const title = (path) => /^# (.*)$/m.exec(readFileSync(path, 'utf8'))[1].replaceAll('`', '')

/** Pages have their file's name. */
class Router extends KindRouter {
  getIdealBaseName(reflection) {
    if (!(reflection instanceof DocumentReflection)) return super.getIdealBaseName(reflection)
    return basename(documents[reflection.project.documents.indexOf(reflection)].path, '.md')
  }
}

rmSync(site, { recursive: true, force: true })
const app = await Application.bootstrap({
  name: 'cann-node',
  entryPoints: ['index.d.ts', 'host.d.ts'].map((name) => join(root, name)),
  tsconfig: join(root, 'tsconfig.json'),
  basePath: root,
  readme: join(root, 'README.md'),
  projectDocuments: documents.map(({ path }) => path),
  out: site,
  customCss: join(root, 'scripts/docs.css'),
  headings: { readme: false },
  hideGenerator: true,
  disableSources: true,
  sort: ['documents-first', 'source-order'],
  groupOrder: [...Object.keys(PAGES), '*'],
  highlightLanguages: ['bash', 'c', 'css', 'html', 'javascript', 'json', 'jsonc', 'python', 'rust', 'sh', 'toml', 'tsx', 'typescript', 'yaml'],
  navigation: { includeGroups: true, compactFolders: false },
  validation: { notExported: true, invalidLink: true, rewrittenLink: true, notDocumented: true },
  treatWarningsAsErrors: true,
})
// As a page's front matter would say; the files stay plain Markdown.
app.renderer.defineRouter('pages', Router)
app.options.setValue('router', 'pages')
app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
  project.documents.forEach((page, i) => {
    page.name = title(documents[i].path)
    page.frontmatter.group = documents[i].group
  })
  for (const module of project.children) module.name = { index: 'cann-node', host: 'cann-node/host' }[module.name]
})
const project = await app.convert()
if (project) {
  app.validate(project)
  await app.generateOutputs(project)
}
if (!project || app.logger.hasErrors() || app.logger.hasWarnings()) process.exit(1)

const pages = readdirSync(site, { recursive: true }).map(String).filter((name) => name.endsWith('.html')).map((name) => join(site, name))
const texts = new Map(pages.map((path) => [path, readFileSync(path, 'utf8')]))
const ids = new Map([...texts].map(([path, text]) => [path, new Set([...text.matchAll(/ id="([^"]*)"/g)].map(([, id]) => id))]))
let links = 0
const broken = []
for (const [path, text] of texts) {
  for (const [, , link] of text.matchAll(/ (href|src)="([^"]*)"/g)) {
    if (/^[a-z]+:/.test(link)) continue
    links++
    const url = new URL(link.replaceAll('&amp;', '&'), pathToFileURL(path))
    const [anchor, target] = [decodeURIComponent(url.hash.slice(1)), fileURLToPath(Object.assign(url, { hash: '', search: '' }))]
    const there = existsSync(target) && (!anchor || !ids.has(target) || ids.get(target).has(anchor))
    if (!there) broken.push(`${relative(site, path)}: ${link}`)
  }
}
for (const line of broken) console.error(`the link leads nowhere: ${line}`)
console.log(`site/: ${pages.length} pages, ${links} links, ${broken.length} of them broken`)
process.exitCode = broken.length ? 1 : 0
