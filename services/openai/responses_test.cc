#include "services/openai/responses.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

namespace skein::services::openai {
namespace {

ResponsesRequest Parsed(const Json& body) {
  ResponsesRequest request;
  const MaybeError error = Parse(body.dump(), {}, &request);
  EXPECT_FALSE(error.has_value()) << error->message;
  return request;
}

TEST(ResponsesRequestTest, TextBecomesAChat) {
  const ResponsesRequest request = Parsed({{"model", "m"},
                                           {"input", "Hello"},
                                           {"instructions", "Be brief."},
                                           {"max_output_tokens", 9},
                                           {"temperature", 0.5},
                                           {"top_p", 0.25},
                                           {"stream", true},
                                           {"metadata", {{"k", "v"}}},
                                           {"user", "u"},
                                           {"store", true}});
  EXPECT_EQ(request.chat.model, "m");
  EXPECT_EQ(request.chat.input.messages.dump(),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hello"}])");
  EXPECT_EQ(request.chat.options.max_tokens, 9);
  EXPECT_EQ(request.chat.options.temperature, 0.5);
  EXPECT_EQ(request.chat.options.top_p, 0.25);
  EXPECT_TRUE(request.chat.options.stream);
  EXPECT_EQ(request.settings["metadata"]["k"], "v");
  EXPECT_EQ(request.settings["instructions"], "Be brief.");
  EXPECT_EQ(request.settings["store"], false);  // whatever was requested
}

TEST(ResponsesRequestTest, ItemsBecomeMessages) {
  const Json input = Json::parse(R"([
      {"role": "developer", "content": "Rules."},
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"},
                                                      {"type": "input_text", "text": "b"}]},
      {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
       "content": [{"type": "output_text", "text": "c", "annotations": []}]},
      {"role": "user", "content": "d"}])");
  EXPECT_EQ(Parsed({{"model", "m"}, {"input", input}}).chat.input.messages.dump(),
            R"([{"role":"system","content":"Rules."},{"role":"user","content":"a\nb"},)"
            R"({"role":"assistant","content":"c"},{"role":"user","content":"d"}])");
}

TEST(ResponsesRequestTest, WhatAsksForNothingIsTaken) {
  Parsed(Json::parse(R"({"model": "m", "input": "x", "previous_response_id": null, "tools": [],
      "tool_choice": "auto", "background": false, "include": [], "truncation": "disabled",
      "text": {"format": {"type": "text"}}, "top_logprobs": 0, "parallel_tool_calls": true,
      "reasoning": {"effort": "low"}, "service_tier": "auto", "store": false})"));
}

TEST(ResponsesRequestTest, WhatIsNotServedIsRefusedByName) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({})", "input"},
      {R"({"input": []})", "input"},
      {R"({"input": 5})", "input"},
      {R"({"input": "x", "previous_response_id": "resp_1"})", "previous_response_id"},
      {R"({"input": "x", "conversation": "conv_1"})", "conversation"},
      {R"({"input": "x", "background": true})", "background"},
      {R"({"input": "x", "prompt": {"id": "p"}})", "prompt"},
      {R"({"input": "x", "tools": [{"type": "web_search"}]})", "tools"},
      {R"({"input": "x", "tool_choice": "required"})", "tool_choice"},
      {R"({"input": "x", "max_tool_calls": 1})", "max_tool_calls"},
      {R"({"input": "x", "include": ["message.output_text.logprobs"]})", "include"},
      {R"({"input": "x", "truncation": "auto"})", "truncation"},
      {R"({"input": "x", "top_logprobs": 2})", "top_logprobs"},
      {R"({"input": "x", "text": {"format": {"type": "json_object"}}})", "text.format"},
      {R"({"input": "x", "text": 5})", "text"},
      {R"({"input": "x", "metadata": 5})", "metadata"},
      {R"({"input": "x", "user": 5})", "user"},
      {R"({"input": "x", "store": 5})", "store"},
      {R"({"input": "x", "temperature": 3})", "temperature"},
      {R"({"input": "x", "top_p": -1})", "top_p"},
      {R"({"input": "x", "max_output_tokens": 0})", "max_output_tokens"},
      {R"({"input": [5]})", "input[0]"},
      {R"({"input": [{"type": "function_call_output"}]})", "input[0].type"},
      {R"({"input": [{"type": "item_reference", "id": "i"}]})", "input[0].type"},
      {R"({"input": [{"role": "tool", "content": "x"}]})", "input[0].role"},
      {R"({"input": [{"role": "user"}]})", "input[0].content"},
      {R"({"input": [{"role": "user", "content": 5}]})", "input[0].content"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})",
       "input[0].content[0].type"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_text"}]}]})",
       "input[0].content[0].text"},
  };
  for (const auto& [body, param] : cases) {
    ResponsesRequest request;
    Json asked = Json::parse(body);
    asked["model"] = "m";
    const MaybeError error = Parse(asked.dump(), {}, &request);
    ASSERT_TRUE(error.has_value()) << body;
    EXPECT_EQ(error->status, 400) << body;
    EXPECT_EQ(error->param, param) << body;
  }
}

Choice Piece(std::string text, std::string finish_reason = {}) {
  Choice choice;
  choice.text = std::move(text);
  choice.finish_reason = std::move(finish_reason);
  return choice;
}

ResponsesWriter Writer() {
  Head head;
  head.id = "resp_1";
  head.created = 5;
  head.model = "m";
  return ResponsesWriter(head, "msg_1", {{"store", false}});
}

// Their data; each event's name is its type, and their numbers count from 0.
std::vector<Json> EventsOf(const std::string& text) {
  std::vector<Json> events;
  size_t at = 0;
  for (size_t end; (end = text.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const std::string lines = text.substr(at, end - at);
    const size_t data = lines.find("\ndata: ");
    EXPECT_EQ(lines.substr(0, 7), "event: ");
    events.push_back(Json::parse(lines.substr(data + 7)));
    EXPECT_EQ(events.back()["type"], lines.substr(7, data - 7));
    EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
  }
  return events;
}

std::string Joined(std::initializer_list<std::string> parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

std::vector<std::string> TypesOf(const std::vector<Json>& events) {
  std::vector<std::string> types;
  for (const Json& event : events) types.push_back(event["type"]);
  return types;
}

TEST(ResponsesWriterTest, AStreamIsTheWholeSequenceOfEvents) {
  ResponsesWriter writer = Writer();
  const auto events =
      EventsOf(Joined({writer.Begin(), writer.Piece(Piece("He")), writer.Piece(Piece("")),
                       writer.Piece(Piece("llo", "stop")), writer.End({7, 2})}));
  EXPECT_EQ(TypesOf(events),
            (std::vector<std::string>{"response.created", "response.in_progress",
                                      "response.output_item.added", "response.content_part.added",
                                      "response.output_text.delta", "response.output_text.delta",
                                      "response.output_text.done", "response.content_part.done",
                                      "response.output_item.done", "response.completed"}));
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_EQ(events[4]["delta"], "He");
  EXPECT_EQ(events[4]["item_id"], "msg_1");
  EXPECT_EQ(events[6]["text"], "Hello");
  const Json& response = events[9]["response"];
  EXPECT_EQ(response["id"], "resp_1");
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "Hello");
  EXPECT_EQ(response["usage"]["input_tokens"], 7);
  EXPECT_EQ(response["usage"]["output_tokens"], 2);
  EXPECT_EQ(response["usage"]["total_tokens"], 9);
  EXPECT_EQ(response["usage"]["input_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(response["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
}

TEST(ResponsesWriterTest, ACutTextIsIncomplete) {
  ResponsesWriter writer = Writer();
  const auto events =
      EventsOf(Joined({writer.Begin(), writer.Piece(Piece("a", "length")), writer.End({1, 1})}));
  EXPECT_EQ(events.back()["type"], "response.incomplete");
  EXPECT_EQ(events.back()["response"]["status"], "incomplete");
  EXPECT_EQ(events.back()["response"]["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(events.back()["response"]["output"][0]["status"], "incomplete");
}

TEST(ResponsesWriterTest, AFailureIsATopLevelErrorAndAFailedResponse) {
  ResponsesWriter writer = Writer();
  const ApiError error{503, "worker died", "", "unavailable"};
  const auto events =
      EventsOf(Joined({writer.Begin(), writer.Piece(Piece("a")), writer.Failed(error, {1, 1})}));
  const Json& event = events[events.size() - 2];
  EXPECT_EQ(event["type"], "error");
  EXPECT_EQ(event["message"], "worker died");
  EXPECT_EQ(event["code"], "unavailable");
  EXPECT_TRUE(event["param"].is_null());
  EXPECT_EQ(events.back()["type"], "response.failed");
  EXPECT_EQ(events.back()["response"]["status"], "failed");
  EXPECT_EQ(events.back()["response"]["error"]["message"], "worker died");
  EXPECT_EQ(events.back()["response"]["error"]["code"], "server_error");
}

TEST(ResponsesWriterTest, WholeIsTheLastEventsResponse) {
  ResponsesWriter streamed = Writer(), whole = Writer();
  const auto events = EventsOf(
      Joined({streamed.Begin(), streamed.Piece(Piece("hi", "stop")), streamed.End({3, 1})}));
  EXPECT_EQ(Json::parse(whole.Whole(Piece("hi", "stop"), {3, 1})), events.back()["response"]);
}

}  // namespace
}  // namespace skein::services::openai
