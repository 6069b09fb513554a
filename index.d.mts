import cann = require('./index.js')
export * from './index.js'
export default cann
