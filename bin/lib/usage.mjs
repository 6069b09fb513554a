/** What the caller did wrong on the command line. */
export class UsageError extends Error {}
