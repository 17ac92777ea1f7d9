/**
 * A plugin for Fastify. See [Fastify, Express, NestJS](../../docs/frameworks.md).
 *
 * @module
 */
export { holdfast } from './plugin.ts'
