// Imports every module that is given, and prints how many names each exports, as JSON.
const counts: Record<string, number> = {}
for (const url of process.argv.slice(2)) {
  const names = Object.keys((await import(url)) as object)
  counts[url] = names.length
}
console.log(JSON.stringify(counts))
