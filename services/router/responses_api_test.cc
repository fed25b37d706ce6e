// POST /v1/responses: the chat path under another shape.
#include <gtest/gtest.h>

#include "services/router/testing/router_fixture.h"

namespace skein::services::testing {
namespace {

Script Stops(std::string text) {
  Script script = Says(std::move(text));
  script.reason = v1::FINISH_REASON_STOP;
  script.stop_token = kEos;
  return script;
}

std::vector<Json> EventsOf(const std::string& body) {
  std::vector<Json> events;
  size_t at = 0;
  for (size_t end; (end = body.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const size_t data = body.find("data: ", at);
    events.push_back(Json::parse(body.substr(data + 6, end - data - 6), nullptr, false));
  }
  return events;
}

const Json kAsked = {{"model", "m"}, {"input", "hey"}, {"max_output_tokens", 20}};

TEST_F(RouterTest, AResponseIsAChatsAnswer) {
  StartRouter([](const v1::RequestSpec&) { return Stops("hi"); });
  const Json response = Ask("/v1/responses", kAsked);
  EXPECT_EQ(response["object"], "response");
  EXPECT_EQ(response["id"].get<std::string>().substr(0, 5), "resp_");
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["model"], "m");
  EXPECT_EQ(response["output"][0]["role"], "assistant");
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "hi");
  EXPECT_EQ(response["usage"]["input_tokens"], 20);
  EXPECT_EQ(response["usage"]["output_tokens"], 3);
  EXPECT_EQ(response["max_output_tokens"], 20);
  const v1::RequestSpec spec = cluster_->specs().at(0);
  EXPECT_EQ(PromptOf(spec), BytesOf("[user]hey[assistant]"));
  EXPECT_EQ(spec.max_tokens(), 20u);
}

TEST_F(RouterTest, AStreamedResponseEndsWithTheWholeOne) {
  StartRouter([](const v1::RequestSpec&) { return Says("hey"); });
  Json body = kAsked;
  body["stream"] = true;
  const http::Response answer = Post("/v1/responses", body);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body.find("[DONE]"), std::string::npos);
  const std::vector<Json> events = EventsOf(answer.body);
  std::string text;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["sequence_number"], i);
    if (events[i]["type"] == "response.output_text.delta") {
      text += events[i]["delta"].get<std::string>();
    }
  }
  EXPECT_EQ(text, "hey");
  EXPECT_EQ(events.front()["type"], "response.created");
  EXPECT_EQ(events.back()["type"], "response.incomplete");
  EXPECT_EQ(events.back()["response"]["output"][0]["content"][0]["text"], "hey");
  EXPECT_EQ(events.back()["response"]["usage"]["output_tokens"], 3);
}

TEST_F(RouterTest, AResponseThatFailsHalfwayEndsAsFailed) {
  StartRouter([](const v1::RequestSpec&) {
    Script script = Says("ab");
    script.failure = absl::UnavailableError("worker died");
    return script;
  });
  Json body = kAsked;
  body["stream"] = true;
  const std::vector<Json> events = EventsOf(Post("/v1/responses", body).body);
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events[events.size() - 2]["type"], "error");
  EXPECT_EQ(events.back()["type"], "response.failed");
  EXPECT_EQ(events.back()["response"]["error"]["message"], "worker died");
}

TEST_F(RouterTest, ARefusedResponseIsAnHttpErrorStreamedOrNot) {
  StartRouter([](const v1::RequestSpec&) {
    Script script;
    script.plan = absl::UnavailableError("none");
    return script;
  });
  for (const bool stream : {false, true}) {
    Json body = kAsked;
    body["stream"] = stream;
    EXPECT_EQ(Post("/v1/responses", body).status, 503);
    body["input"] = std::string(300, 'x');
    const http::Response large = Post("/v1/responses", body);
    EXPECT_EQ(large.status, 400);
    EXPECT_EQ(Json::parse(large.body)["error"]["param"], "input");
    body["previous_response_id"] = "resp_1";
    EXPECT_EQ(Json::parse(Post("/v1/responses", body).body)["error"]["param"],
              "previous_response_id");
  }
}

}  // namespace
}  // namespace skein::services::testing
