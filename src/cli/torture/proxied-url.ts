/** The servers of a URL, and the same URL with proxies in their places. */
export interface ProxiedUrl {
  readonly servers: readonly ProxiedServer[]
  /** `ports`: of the proxies on 127.0.0.1, in the order of the servers. */
  readonly through: (ports: readonly number[]) => string
}

export interface ProxiedServer {
  readonly host: string
  readonly port: number
}

/** Why no proxy can stand in between, as the rest of a sentence. */
export interface NotProxied {
  readonly because: string
}

export function proxiedUrl(url: string): ProxiedUrl | NotProxied {
  const scheme = url.slice(0, Math.max(0, url.indexOf(':'))).toLowerCase()
  switch (scheme) {
    case 'redis':
      return throughAll([url], ([one = '']) => one)
    case 'redlock':
      return redlock(url)
    case 'postgres':
    case 'postgresql':
      return postgres(url)
    case 'etcd':
      return etcd(url)
    case 'sqlite':
    case 'memory':
      return { because: `there is no network to ${scheme}:` }
    case 'rediss':
    case 'etcds':
      return { because: TLS }
    default:
      return {
        because: `the servers of ${scheme}: tell their addresses themselves, so no proxy can stand before them`,
      }
  }
}

const TLS = 'TLS checks the name of the server, which a proxy does not have'

function redlock(url: string): ProxiedUrl | NotProxied {
  const parts = url
    .slice('redlock:'.length)
    .split(/,(?=\s*rediss?:)/i)
    .map((part) => part.trim())
  if (parts.some((part) => /^rediss:/i.test(part))) return { because: TLS }
  return throughAll(parts, (all) => `redlock:${all.join(',')}`)
}

function postgres(url: string): ProxiedUrl | NotProxied {
  if (!URL.canParse(url)) return UNREADABLE
  const { searchParams, hostname } = new URL(url)
  const mode = searchParams.get('sslmode')
  const isPlain = mode === null || ['disable', 'allow', 'prefer'].includes(mode)
  if (!isPlain || searchParams.has('ssl')) return { because: TLS }
  if (hostname === '' || searchParams.has('host')) return { because: 'the URL names a socket file' }
  return throughAll([url], ([one = '']) => one, 5432)
}

function etcd(url: string): ProxiedUrl | NotProxied {
  const [, before = '', hosts = '', behind = ''] = /^(etcd:\/\/(?:[^@/]*@)?)([^@/?#]+)(.*)$/is.exec(url) ?? []
  const servers = hosts.split(',').map((host) => {
    const [, name = '', port] = /^(.*?)(?::(\d+))?$/.exec(host) ?? []
    return { host: withoutBrackets(name), port: port === undefined ? 2379 : Number(port) }
  })
  if (hosts === '') return UNREADABLE
  return {
    servers,
    through: (ports) => `${before}${ports.map((port) => `127.0.0.1:${port}`).join(',')}${behind}`,
  }
}

function throughAll(
  urls: readonly string[],
  join: (urls: readonly string[]) => string,
  defaultPort = 6379,
): ProxiedUrl | NotProxied {
  if (!urls.every((url) => URL.canParse(url))) return UNREADABLE
  return {
    servers: urls.map((url) => {
      const { hostname, port } = new URL(url)
      return { host: withoutBrackets(hostname) || '127.0.0.1', port: Number(port) || defaultPort }
    }),
    through: (ports) =>
      join(
        urls.map((url, index) => {
          const proxied = new URL(url)
          proxied.hostname = '127.0.0.1'
          proxied.port = String(ports[index])
          return proxied.href
        }),
      ),
  }
}

/** The store itself says what is wrong with it. */
const UNREADABLE: NotProxied = { because: 'the URL cannot be read' }

function withoutBrackets(host: string): string {
  return host.replace(/^\[(.*)\]$/, '$1')
}
