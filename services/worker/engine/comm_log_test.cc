#include "services/worker/engine/comm_log.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace skein::services {
namespace {

using engine::CommPath;

std::string DueOf(CommLog* log, std::vector<engine::CommTotals> totals) {
  std::string due;
  for (const engine::CommTotals& one : log->Due(totals)) {
    due += std::to_string(one.ranks) + std::string(engine::NameOf(one.path)) + " ";
  }
  return due;
}

TEST(CommLog, SaysEachWayOnceAndAgainWhenItsBytesHaveGrownEightfold) {
  CommLog log;
  EXPECT_EQ(DueOf(&log, {}), "");
  EXPECT_EQ(DueOf(&log, {{.ranks = 2, .path = CommPath::kIpc, .bytes = 0}}), "");
  EXPECT_EQ(DueOf(&log, {{.ranks = 2, .path = CommPath::kIpc, .bytes = 10}}), "2ipc ");
  EXPECT_EQ(DueOf(&log, {{.ranks = 2, .path = CommPath::kIpc, .bytes = 79},
                         {.ranks = 4, .path = CommPath::kIpc, .bytes = 1},
                         {.ranks = 2, .path = CommPath::kHost, .bytes = 1}}),
            "4ipc 2host ");
  EXPECT_EQ(DueOf(&log, {{.ranks = 2, .path = CommPath::kIpc, .bytes = 80},
                         {.ranks = 4, .path = CommPath::kIpc, .bytes = 7},
                         {.ranks = 2, .path = CommPath::kHost, .bytes = 8}}),
            "2ipc 2host ");
}

}  // namespace
}  // namespace skein::services
