// Walks the API's description: every path and parameter of it, against a running router. Errors:
// api_errors_test.cc.
#include "services/openai/api_description.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "services/openai/answer_schemas.h"
#include "services/openai/openapi.h"
#include "services/router/testing/fake_jobs.h"
#include "services/router/testing/fits_schema.h"
#include "services/router/testing/router_fixture.h"

namespace skein::services::testing {
namespace {

using openai::Endpoint;
using openai::Parameter;
using openai::Support;
using openai::Type;

class ApiDescriptionTest : public RouterTest {
 protected:
  void Start(FakeCluster::ScriptFn script) {
    services_.push_back(&jobs_service_);
    jobs_service_.Put("m", "{}");
    v1::JobStatus job;
    job.set_id("m");
    jobs_service_.PutJob(job);
    StartRouter(std::move(script), core_);
  }

  scheduler::RouterConfig core_;
  FakeJobs jobs_service_;
};

// ---- parameters ----

const Json kMessages = Json::array({{{"role", "user"}, {"content", "a"}}});

// The least that a path accepts.
Json LeastBody(const Endpoint& endpoint) {
  Json body = Json::object();
  if (FindParameter(endpoint.parameters, "model") != nullptr) body["model"] = "m";
  for (const Parameter& row : endpoint.parameters) {
    if (row.required && row.name != "model") body[std::string(row.name)] = Json::parse(row.example);
  }
  if (endpoint.path == "/tokenize") body["prompt"] = "a";
  return body;
}

Json With(Json body, const Parameter& row, const Json& value) {
  if (!row.needs.empty()) body.update(Json::parse(row.needs));
  const size_t dot = row.name.find('.');
  if (dot == std::string_view::npos) {
    body[std::string(row.name)] = value;
  } else {
    body[std::string(row.name.substr(0, dot))][std::string(row.name.substr(dot + 1))] = value;
  }
  return body;
}

Json Number(const Parameter& row, double value) {
  if (row.type == Type::kInt) return static_cast<int64_t>(value);
  return value;
}

std::vector<Json> ServedValues(const Parameter& row) {
  if (!row.example.empty()) return {Json::parse(row.example)};
  if (row.name == "model") return {"m"};
  switch (row.type) {
    case Type::kBool:
      return {true, false};
    case Type::kInt:
    case Type::kNumber:
      return {Number(row, row.low), Number(row, row.high)};
    case Type::kInt64:
      return {INT64_MIN, 0, INT64_MAX};
    case Type::kString:
      return {"x"};
    case Type::kStrings:
      return {"x", Json::array({"x", "y"})};
    case Type::kTokenIds:
      return {Json::array(), Json::array({0, 1})};
    case Type::kObject:
      return {Json::object()};
    case Type::kArray:
      return {Json::array()};
    case Type::kAny:
      break;
  }
  ADD_FAILURE() << row.name << " needs an example";
  return {};
}

std::vector<Json> WrongValues(const Parameter& row) {
  switch (row.type) {
    case Type::kInt:
      return {"x", 1.5, Number(row, row.low - 1), Number(row, row.high + 1)};
    case Type::kInt64:
      return {"x", 1.5, 1e30};
    case Type::kNumber:
      if (row.low == row.high) return {"x"};
      return {"x", row.low - 1, row.high + 1};
    case Type::kStrings:
      return {5, Json::array({5})};
    case Type::kTokenIds:
      return {5, Json::array({-1}), Json::array({"x"})};
    case Type::kBool:
    case Type::kString:
    case Type::kObject:
    case Type::kArray:
    case Type::kAny:
      return {5};
  }
  return {};
}

class ParameterTest : public ApiDescriptionTest, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    max_positions_ = 2'000'000'000;  // room for the longest output of the description
    core_.max_streams = 256;
    Start([](const v1::RequestSpec&) { return Says("x"); });
    endpoint_ = openai::FindEndpoint("POST", GetParam());
    ASSERT_NE(endpoint_, nullptr);
  }

  void ExpectServed(const Json& body) {
    const http::Response answer = Post(GetParam(), body);
    EXPECT_EQ(answer.status, 200) << body << "\n" << answer.body;
    EXPECT_EQ(http::FindHeader(answer.headers, "X-Skein-Warning"), "") << body;
  }

  // Before a stream opens, whether or not one is asked for.
  void ExpectRefused(Json body, std::string_view param, std::string_view code = {}) {
    for (const bool stream : {false, true}) {
      if (stream && !endpoint_->streams) continue;
      if (stream) body["stream"] = true;
      const http::Response answer = Post(GetParam(), body);
      EXPECT_EQ(answer.status, 400) << body << "\n" << answer.body;
      const Json error = Json::parse(answer.body, nullptr, false)["error"];
      EXPECT_EQ(error["param"], param) << body << "\n" << answer.body;
      if (!code.empty()) {
        EXPECT_EQ(error["code"], code) << answer.body;
      }
      if (param == "stream") return;
    }
  }

  std::vector<const Parameter*> Rows(bool refused) const {
    std::vector<const Parameter*> rows;
    for (const Parameter& row : endpoint_->parameters) {
      if ((row.support == Support::kRefused) == refused) rows.push_back(&row);
    }
    return rows;
  }

  const Endpoint* endpoint_ = nullptr;
};

TEST_P(ParameterTest, HonouredAndIgnoredOnesAreAcceptedAtTheirLimits) {
  const Json least = LeastBody(*endpoint_);
  for (const Parameter* row : Rows(/*refused=*/false)) {
    for (const Json& value : ServedValues(*row)) ExpectServed(With(least, *row, value));
    if (!least.contains(std::string(row->name))) ExpectServed(With(least, *row, nullptr));
  }
}

TEST_P(ParameterTest, HonouredAndIgnoredOnesAreRefusedBeyondTheirLimits) {
  const Json least = LeastBody(*endpoint_);
  for (const Parameter* row : Rows(/*refused=*/false)) {
    for (const Json& value : WrongValues(*row)) ExpectRefused(With(least, *row, value), row->name);
    if (row->required) {
      ExpectRefused(With(least, *row, nullptr), row->name, "missing_required_parameter");
    }
  }
  EXPECT_TRUE(cluster_->specs().empty());
}

TEST_P(ParameterTest, RefusedOnesAreRefusedByName) {
  const Json least = LeastBody(*endpoint_);
  for (const Parameter* row : Rows(/*refused=*/true)) {
    const Json value = row->example.empty() ? Json(7) : Json::parse(row->example);
    ExpectRefused(With(least, *row, value), row->name, "unsupported_parameter");
  }
  EXPECT_TRUE(cluster_->specs().empty());
}

TEST_P(ParameterTest, RefusedOnesMayAskForNothing) {
  const Json least = LeastBody(*endpoint_);
  for (const Parameter* row : Rows(/*refused=*/true)) {
    const Json neutral = row->neutral.empty()
                             ? Json::array({false, "", Json::array(), Json::object(), nullptr})
                             : Json::parse(row->neutral);
    for (const Json& value : neutral) ExpectServed(With(least, *row, value));
    if (row->unless.empty()) continue;
    Json body = With(least, *row, Json::parse(row->example));
    body.update(Json::parse(row->unless));
    ExpectServed(body);
  }
}

TEST_P(ParameterTest, NoNameTwice) {
  std::set<std::string_view> names;
  for (const Parameter& row : endpoint_->parameters) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.meaning.empty()) << row.name;
  }
}

std::vector<std::string> PathsWithParameters() {
  std::vector<std::string> paths;
  for (const Endpoint& endpoint : openai::Endpoints()) {
    if (!endpoint.parameters.empty()) paths.emplace_back(endpoint.path);
  }
  return paths;
}

INSTANTIATE_TEST_SUITE_P(Paths, ParameterTest, ::testing::ValuesIn(PathsWithParameters()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '/', '_');
                           return name;
                         });

// ---- paths ----

TEST_F(ApiDescriptionTest, RoutesAreDescribedAndTheOtherWayRound) {
  Start([](const v1::RequestSpec&) { return Says("x"); });
  std::set<std::pair<std::string, std::string>> described, routes;
  for (const Endpoint& e : openai::Endpoints()) described.emplace(e.method, e.path);
  for (const auto& route : routes_.All()) routes.insert(route);
  EXPECT_EQ(described, routes);
}

TEST_F(ApiDescriptionTest, PagesAnswer) {
  Start([](const v1::RequestSpec&) { return Says("x"); });
  for (const Endpoint& endpoint : openai::Endpoints()) {
    if (endpoint.method != "GET") continue;
    std::string path(endpoint.path);
    if (const size_t star = path.find('*'); star != std::string::npos) path.replace(star, 1, "m");
    const http::Response page = http::testing::Fetch(server_->port(), "GET", path);
    EXPECT_EQ(page.status, 200) << path;
    const bool json = endpoint.answer != openai::Body::kText;
    EXPECT_EQ(http::FindHeader(page.headers, "Content-Type").substr(0, 10),
              json ? "applicatio" : "text/plain")
        << path;
  }
}

// ---- answers ----

// The data of events that have names, without [DONE].
std::vector<Json> TypedEvents(const std::string& body) {
  std::vector<Json> events;
  for (size_t at = 0; (at = body.find("\ndata: ", at)) != std::string::npos; ++at) {
    const size_t begin = at + 7;
    events.push_back(Json::parse(body.substr(begin, body.find('\n', begin) - begin)));
  }
  return events;
}

TEST_F(ApiDescriptionTest, AnswersFitTheirSchemas) {
  Start([](const v1::RequestSpec&) {
    Script script = Says("ab");
    for (v1::SampledToken& token : script.tokens) {
      token.set_logprob(-1);
      token.add_top()->set_token('z');
    }
    return script;
  });
  const Json schemas = openai::AnswerSchemas();
  const Json all = {
      {"return_token_ids", true}, {"return_metrics", true}, {"n", 2}, {"max_tokens", 2}};
  const std::map<std::string, Json> more = {
      {"/v1/completions", {{"logprobs", 2}, {"echo", true}}},
      {"/v1/chat/completions", {{"logprobs", true}, {"top_logprobs", 2}}},
      {"/tokenize", {{"return_token_strs", true}}}};
  for (const Endpoint& endpoint : openai::Endpoints()) {
    if (endpoint.parameters.empty()) continue;
    const std::string path(endpoint.path), schema(openai::SchemaName(endpoint.answer));
    Json body = LeastBody(endpoint);
    ExpectFits(Ask(path, body), schemas[schema], schemas, path);
    if (more.count(path)) body.update(more.at(path));
    if (endpoint.streams) body.update(all);
    ExpectFits(Ask(path, body), schemas[schema], schemas, path);
    if (!endpoint.streams) continue;
    body["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", true}};
    const std::string event_schema(openai::EventSchemaName(endpoint.answer));
    const bool typed = endpoint.answer == openai::Body::kResponse;
    if (typed) body["stream"] = true;
    const auto events = typed ? TypedEvents(Post(path, body).body) : Stream(path, body);
    EXPECT_FALSE(events.empty()) << path;
    for (const Json& event : events) {
      ExpectFits(event, schemas[event_schema], schemas, path + " event");
    }
  }
  const auto get = [this](const char* path) {
    return Json::parse(http::testing::Fetch(server_->port(), "GET", path).body);
  };
  ExpectFits(get("/v1/models"), schemas["Models"], schemas, "models");
  ExpectFits(get("/v1/models/m"), schemas["Model"], schemas, "model");
  ExpectFits(get("/v1/models/zz"), schemas["Error"], schemas, "error");
}

// ---- /openapi.json ----

void ExpectRefsResolve(const Json& node, const Json& schemas) {
  if (node.is_object() && node.contains("$ref")) {
    const std::string ref = node["$ref"];
    EXPECT_TRUE(schemas.contains(ref.substr(ref.rfind('/') + 1))) << ref;
  }
  if (!node.is_structured()) return;
  for (const Json& child : node) ExpectRefsResolve(child, schemas);
}

TEST_F(ApiDescriptionTest, OpenApiHasEverything) {
  Start([](const v1::RequestSpec&) { return Says("x"); });
  const Json doc = Json::parse(http::testing::Fetch(server_->port(), "GET", "/openapi.json").body);
  EXPECT_EQ(doc["openapi"], "3.1.0");
  const Json& schemas = doc["components"]["schemas"];
  ExpectRefsResolve(doc, schemas);
  std::set<std::string> operations;
  for (const auto& [path, item] : doc["paths"].items()) {
    for (const auto& [method, operation] : item.items()) {
      EXPECT_TRUE(operations.insert(operation["operationId"]).second) << operation["operationId"];
    }
  }
  EXPECT_EQ(operations.size(), openai::Endpoints().size());
  const Json& chat = schemas["post_v1_chat_completions_request"];
  const auto& properties = chat["properties"];
  EXPECT_EQ(properties["temperature"]["maximum"], 2);
  EXPECT_TRUE(properties["stream_options"]["properties"].contains("include_usage"));
  EXPECT_EQ(chat["required"], Json({"messages", "model"}));
  const Json& completions = doc["paths"]["/v1/completions"]["post"];
  for (const char* status : {"401", "413", "431"}) {
    EXPECT_TRUE(completions["responses"].contains(status)) << status;
  }
  EXPECT_EQ(completions["security"].dump(), R"([{},{"api_key":[]}])");
  EXPECT_EQ(doc["components"]["securitySchemes"]["api_key"]["scheme"], "bearer");
  EXPECT_FALSE(doc["paths"]["/readyz"]["get"].contains("security"));
  const Json& refused = chat["x-skein-refused"];
  EXPECT_NE(std::find(refused.begin(), refused.end(), "regex"), refused.end());
  EXPECT_EQ(properties["response_format"]["enum"][0]["type"], "text");
}

}  // namespace
}  // namespace skein::services::testing
