#include "services/tracing/trace_page.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace skein::services {
namespace {

using Json = nlohmann::json;

TEST(TracePageTest, ASpanIsWrittenWithAllThatIsKnownOfIt) {
  Span span;
  span.context = {.trace = {1}, .span = 2, .sampled = true};
  span.parent = 3;
  span.name = "chunk";
  span.start_unix_ns = 1'000;
  span.end_unix_ns = 5'000;
  span.attributes = {{"skein.tokens", 7}, {"skein.request_id", "7/1"}, {"share", 0.5}};
  span.events = {{2'000, "formation", {{"skein.formation", "bound(2)"}}}};
  span.failed = true;
  span.failure = "its instance was lost \xff";
  const Json json = Json::parse(SpansJson({std::make_shared<const Span>(span)}));
  EXPECT_TRUE(json["tracing"].get<bool>());
  const Json& one = json["spans"].at(0);
  EXPECT_EQ(one["trace"], "01000000000000000000000000000000");
  EXPECT_EQ(one["span"], "0000000000000002");
  EXPECT_EQ(one["parent"], "0000000000000003");
  EXPECT_EQ(one["name"], "chunk");
  EXPECT_EQ(one["start_unix_ns"], 1'000);
  EXPECT_EQ(one["end_unix_ns"], 5'000);
  EXPECT_EQ(one["attributes"]["skein.tokens"], 7);
  EXPECT_EQ(one["attributes"]["share"], 0.5);
  EXPECT_EQ(one["events"].at(0)["attributes"]["skein.formation"], "bound(2)");
  EXPECT_TRUE(one["failed"].get<bool>());
}

TEST(TracePageTest, AFirstSpanHasNoParent) {
  Span span;
  span.context = {.trace = {1}, .span = 2, .sampled = true};
  const Json json = Json::parse(SpansJson({std::make_shared<const Span>(span)}));
  EXPECT_EQ(json["spans"].at(0)["parent"], "");
}

}  // namespace
}  // namespace skein::services
