import host = require('./host.js')
export * from './host.js'
export default host
