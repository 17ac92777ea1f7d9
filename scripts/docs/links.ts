import { type Application, PageEvent, type Reflection, ReflectionKind } from 'typedoc'

const SCHEME = 'name:'

/**
 * Resolves `{@link Name}` where the file that says so does not import the name, by the names that the package exports. Links to
 * the first page name its file, because a folder has no first page without a server.
 */
export function resolveLinks(app: Application): void {
  app.converter.addUnknownSymbolResolver((reference, from) => {
    const [name, ...members] = reference.symbolReference?.path?.map(({ path }) => path) ?? []
    const exported = from.project.getReflectionsByKind(ReflectionKind.SomeExport)
    const found = exported.find((one) => one.name === name && one.parent?.kindOf(ReflectionKind.Module))
    const target = members.length === 0 ? found : found?.getChildByName(members)
    return target === undefined ? undefined : `${SCHEME}${target.id}`
  })
  app.renderer.on(PageEvent.END, (page) => {
    const urlOf = (id: string): string => {
      const target = page.project.getReflectionById(Number(id))
      return app.renderer.router?.relativeUrl(page.model, target as Reflection) ?? ''
    }
    if (page.contents === undefined) return
    page.contents = page.contents
      .replace(/(?<=href=")name:(\d+)(?=")/g, (_, id: string) => urlOf(id))
      .replace(/(?<=href=")(?:\.\/|((?:\.\.\/)+))(?=["#])/g, (_, up = '') => `${up}index.html`)
  })
}
