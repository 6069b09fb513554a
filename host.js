'use strict'

const { connect } = require('./lib/host/connect.js')

module.exports = { connect }
