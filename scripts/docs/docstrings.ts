import {
  type Application,
  Converter,
  type ProjectReflection,
  ReferenceType,
  type Reflection,
  ReflectionKind,
  ReflectionType,
  type SomeType,
} from 'typedoc'

const kind = ReflectionKind
const NAMES =
  kind.Accessor |
  kind.Class |
  kind.Function |
  kind.Interface |
  kind.Method |
  kind.Module |
  kind.Property |
  kind.TypeAlias |
  kind.Variable

/** The public names without a docstring, members included. */
export function undocumented(project: ProjectReflection): string[] {
  return project
    .getReflectionsByKind(NAMES)
    .filter((one) => !hasDocstring(one) && !one.flags.isExternal && !isSelfExplaining(one))
    .map((one) => one.getFriendlyFullName())
}

function hasDocstring(one: Reflection): boolean {
  if (one.hasComment() || !one.isDeclaration()) return true
  const inner = one.type instanceof ReflectionType ? one.type.declaration.signatures : undefined
  const signatures = [...(one.signatures ?? []), ...(inner ?? []), one.getSignature, one.setSignature]
  return signatures.some((signature) => signature?.hasComment())
}

/** The shapes of other packages' objects. Those packages say what their members do. */
const SHAPES = /^((Ioredis|NodeRedis)(Client|Cluster|Connection|Scripting)|\w+Queryable|OutgoingResponse)$/

/** A member of a type literal, which belongs to a name with a docstring, or of another package's shape. */
function isSelfExplaining({ parent }: Reflection): boolean {
  if (parent === undefined) return false
  return parent.kindOf(kind.TypeLiteral) || SHAPES.test(parent.name) || isSelfExplaining(parent)
}

/** Says of every overload what the first one says. */
export function documentOverloads(app: Application): void {
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    for (const one of project.getReflectionsByKind(kind.FunctionOrMethod)) {
      if (!one.isDeclaration()) continue
      const comment = one.signatures?.find((signature) => signature.comment !== undefined)?.comment
      for (const signature of one.signatures ?? []) {
        if (comment !== undefined) signature.comment ??= comment.clone()
      }
    }
  })
}

/** `Pick<Election, keyof Election>` is the exported type of that name: the public members of an internal class. */
export function namePublicTypes(app: Application): void {
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    const exported = project.getReflectionsByKind(kind.Interface)
    const publicType = (type: SomeType): SomeType => {
      if (!(type instanceof ReferenceType) || type.name !== 'Pick') return type
      const [first] = type.typeArguments ?? []
      if (!(first instanceof ReferenceType) || first.reflection !== undefined) return type
      const found = exported.find(({ name }) => name === first.name)
      return found === undefined ? type : ReferenceType.createResolvedReference(found.name, found, project)
    }
    for (const one of project.getReflectionsByKind(kind.CallSignature)) {
      if (one.isSignature() && one.type !== undefined) one.type = publicType(one.type)
    }
  })
}

/** The names of an entry by the alphabet. The members of each stay in the order of the source. */
export function sortNames(project: ProjectReflection): void {
  for (const entry of project.getReflectionsByKind(kind.Module)) {
    if (!entry.isDeclaration()) continue
    for (const group of entry.groups ?? []) group.children.sort((a, b) => (a.name < b.name ? -1 : 1))
  }
}
