// Runs a client's tests, {name: async function}, one after another. Prints one line a test and how many passed; exit status 1 when one failed.
'use strict';

module.exports = async function runCases(tests) {
  const count = { passed: 0, failed: 0 };
  for (const [name, test] of Object.entries(tests)) {
    try {
      await test();
      count.passed += 1;
      console.log(`passed   ${name}`);
    } catch (error) {
      count.failed += 1;
      console.log(`failed   ${name}\n${error.stack}`);
    }
  }
  console.log(`CASES ${count.passed} passed, ${count.failed} failed, 0 skipped`);
  process.exitCode = count.failed ? 1 : 0;
};
