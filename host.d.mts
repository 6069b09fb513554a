export * from './host.js'
