// What headers say.
#include "services/router/api/identity.h"

#include <gtest/gtest.h>

#include <utility>

namespace skein::services {
namespace {

using http::Header;

struct Case {
  std::vector<Header> headers;
  std::string session, tenant, priority;
};

TEST(HintsTest, ThePeersHeadersAreAliases) {
  const std::vector<Case> cases = {
      {{}, "", "", ""},
      {{{"X-Session-ID", "s"}}, "s", "", ""},
      {{{"X-Dynamo-Session-ID", "s"}}, "s", "", ""},
      {{{"x-claude-code-session-id", "s"}}, "s", "", ""},
      {{{"session-id", "s"}}, "s", "", ""},
      {{{"X-Session-Affinity", "s"}}, "s", "", ""},
      {{{"x-session-token", "s"}}, "s", "", ""},
      {{{"X-SMG-Routing-Key", "s"}}, "s", "", ""},
      {{{"session-id", "second"}, {"x-session-id", "first"}}, "first", "", ""},
      {{{"x-session-id", "not plain"}, {"session-id", "s"}}, "s", "", ""},
      {{{"x-llm-d-inference-fairness-id", "t"}}, "", "t", ""},
      {{{"x-smg-tenant-id", "t"}}, "", "t", ""},
      {{{"x-dynamo-request-priority", "-3"}}, "", "", "x-dynamo-request-priority: -3"},
      {{{"x-llm-d-inference-objective", "batch"}}, "", "", "x-llm-d-inference-objective: batch"},
      {{{"X-SMG-Priority", "Bulk"}}, "", "", "x-smg-priority: Bulk"},
  };
  for (const Case& c : cases) {
    ClientHints hints;
    ASSERT_FALSE(ReadHints(c.headers, &hints).has_value());
    const std::string name = c.headers.empty() ? "none" : c.headers[0].name;
    EXPECT_EQ(hints.session, c.session) << name;
    EXPECT_EQ(hints.tenant, c.tenant) << name;
    EXPECT_EQ(hints.priority, c.priority) << name;
  }
}

TEST(HintsTest, APriorityThatIsNoneIsRefusedByName) {
  for (const Header& header : {Header{"X-Dynamo-Request-Priority", "high"},
                               Header{"x-dynamo-request-priority", "2147483648"},
                               Header{"x-dynamo-request-strict-priority", "1.5"},
                               Header{"x-llm-d-inference-objective", "two words"}}) {
    ClientHints hints;
    const openai::MaybeError error = ReadHints({header}, &hints);
    ASSERT_TRUE(error.has_value()) << header.value;
    EXPECT_EQ(error->status, 400);
    EXPECT_FALSE(error->param.empty());
    EXPECT_NE(error->message.find(error->param), std::string::npos);
  }
}

TEST(HintsTest, GoalsAreMilliseconds) {
  const auto goals = [](const std::vector<Header>& headers) {
    ClientHints hints;
    EXPECT_FALSE(ReadHints(headers, &hints).has_value());
    return std::pair(hints.ttft_goal_us, hints.tpot_goal_us);
  };
  EXPECT_EQ(goals({}), std::pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ(goals({{"X-LLM-D-SLO-TTFT-ms", "2000"}, {"x-llm-d-slo-tpot-ms", "12.5"}}),
            std::pair(int64_t{2'000'000}, int64_t{12'500}));
  EXPECT_EQ(goals({{"x-slo-ttft-ms", "1"}, {"x-slo-tpot-ms", "2"}}),
            std::pair(int64_t{1000}, int64_t{2000}));
  EXPECT_EQ(goals({{"x-slo-ttft-ms", "1"}, {"x-llm-d-slo-ttft-ms", "7"}}).first, 7000);
  for (const char* value : {"0", "-1", "soon", "86400001", "nan", "inf", "1 s"}) {
    for (const char* name : {"x-llm-d-slo-ttft-ms", "x-slo-ttft-ms", "x-llm-d-slo-tpot-ms"}) {
      ClientHints hints;
      const openai::MaybeError error = ReadHints({{name, value}}, &hints);
      ASSERT_TRUE(error.has_value()) << name << ": " << value;
      EXPECT_EQ(error->status, 400);
      EXPECT_EQ(error->param, name);
    }
  }
}

TEST(Identity, ASessionIsAKeyThatAllRoutersAgreeOn) {
  EXPECT_EQ(AffinityOf({}), 0u);
  EXPECT_EQ(AffinityOf({.tenant = "t"}), 0u);
  EXPECT_EQ(AffinityOf({.session = "a"}), 0xaf63dc4c8601ec8cu) << "FNV-1a of 'a'";
  EXPECT_NE(AffinityOf({.session = "a"}), AffinityOf({.session = "b"}));
}

}  // namespace
}  // namespace skein::services
