import host from './host.js'

export const { connect } = host
export default host
