#include "services/skeinctl/cluster/requests.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace skein::services {
namespace {

v1::ListRequestsResponse Example() {
  v1::ListRequestsResponse response;
  v1::RequestExplanation* ended = response.add_requests();
  ended->mutable_id()->set_router(7);
  ended->mutable_id()->set_serial(1);
  ended->add_names("cmpl-1");
  ended->set_model("m");
  ended->set_prompt_tokens(96);
  ended->set_output_tokens(4);
  ended->set_first_token_s(0.25);
  ended->set_ended_s(0.5);
  ended->set_age_s(75);
  ended->set_state("completed: max_tokens");
  v1::RequestExplanation* alive = response.add_requests();
  alive->mutable_id()->set_router(7);
  alive->mutable_id()->set_serial(2);
  alive->set_age_s(2.5);
  alive->set_state("decoding");
  return response;
}

TEST(Requests, TheTableHasARowARequest) {
  const std::string table = RequestsTable(Example());
  for (const char* part : {"cmpl-1", "1 min 15 s ago", "0.250", "0.500  completed: max_tokens",
                           "7/2", "2.500  decoding"}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
  }
  EXPECT_EQ(RequestsTable({}), "no requests yet\n");
}

TEST(Requests, JsonHasNullForWhatIsNotKnown) {
  const auto json = nlohmann::json::parse(RequestsJson(Example()))["requests"];
  EXPECT_EQ(json[0]["output_tokens"], 4);
  EXPECT_EQ(json[0]["names"][0], "cmpl-1");
  EXPECT_TRUE(json[1]["output_tokens"].is_null());
  EXPECT_TRUE(json[1]["ended_s"].is_null());
  EXPECT_EQ(json[1]["ended"], false);
}

}  // namespace
}  // namespace skein::services
