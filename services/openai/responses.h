// OpenAI's Responses API on top of chat generation: a request becomes a ChatRequest, and an
// answer's text becomes the single message of a response's output.
#pragma once

#include <string>
#include <string_view>

#include "services/openai/request.h"
#include "services/openai/response.h"

namespace skein::services::openai {

struct ResponsesRequest {
  ChatRequest chat;
  Json settings;  // request settings that the response object repeats
};

// Text in, text out, as described in the API's description. Refused by name: parameters that need a
// store of earlier responses (previous_response_id, conversation, background, prompt), tools,
// structured text, and inputs that are not text. `store` is accepted, and the answer reports it as
// false.
MaybeError Parse(std::string_view body, const ParseLimits& limits, ResponsesRequest* request);

// Writes one response, whole or as server-sent events with their numbers:
//   response.created, response.in_progress, response.output_item.added,
//   response.content_part.added, response.output_text.delta …, response.output_text.done,
//   response.content_part.done, response.output_item.done,
//   then response.completed, or response.incomplete when the text was cut by max_output_tokens.
// A failure in mid-stream is an `error` event, then response.failed. There is no [DONE].
class ResponsesWriter {
 public:
  // `head`: id ("resp_…"), created and model count. `message_id`: "msg_…".
  ResponsesWriter(Head head, std::string message_id, Json settings);

  std::string Begin();                     // events up to the first delta
  std::string Piece(const Choice& piece);  // "" when it has neither text nor an end
  std::string End(const Usage& usage);     // after the last piece
  std::string Failed(const ApiError& error, const Usage& usage);

  std::string Whole(const Choice& choice, const Usage& usage);

 private:
  Json Response(std::string_view status) const;
  Json Message(std::string_view status) const;
  Json TextPart() const;
  Json Ended(const Usage& usage) const;
  std::string Event(std::string_view type, Json fields);

  const Head head_;
  const std::string message_id_;
  const Json settings_;
  std::string text_;
  bool cut_ = false;  // by max_output_tokens
  int sequence_ = 0;
};

}  // namespace skein::services::openai
