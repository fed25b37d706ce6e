// The fault table: a row for each scenario. Pure.
#pragma once

#include <string>
#include <vector>

#include "services/skeinctl/chaos/judge.h"

namespace skein::services::chaos {

// What was broken, and under which load.
struct TableHead {
  std::string version;  // of skeinctl
  std::string machine;
  std::string cluster;   // "2 prefill, 2 decode, 1 orchestrator, 1 router, local processes"
  std::string load;      // "16 streams of 500 to 1000 tokens, half of them sampled"
  double stall_s = 0;    // a longer gap between two tokens counts as a pause
  std::string left_out;  // of the scenarios asked for, and why: a sentence; empty: nothing
};

// For people: head, table, and below it the kinds of requests and the errors that clients saw.
std::string FaultText(const TableHead& head, const std::vector<Row>& rows);

// The rows as a table in Markdown, as in the README.
std::string FaultMarkdown(const TableHead& head, const std::vector<Row>& rows);

// For programs; ends with a line feed. `rows` have the columns of the table, `faults` of a row each
// fault by itself, `kinds` the counts of each kind of request.
std::string FaultJson(const TableHead& head, const std::vector<Row>& rows);

}  // namespace skein::services::chaos
