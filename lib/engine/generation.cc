#include "engine/generation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/text.h"
#include "data/step_order.h"
#include "engine/class_outputs.h"
#include "engine/rnn_states.h"
#include "nn/output_scale.h"

namespace meshtrain {
namespace {

constexpr int64_t kPrefill = 32;  // steps of a run through a long prompt

// Of `count` numbers from `first` on, none is below zero, and their sum is 1.
bool are_probabilities(const HostTensor& values, int64_t first, int64_t count) {
  constexpr double kNear = 1e-2;  // of sums in 16 bits
  double sum = 0;
  for (int64_t i = first; i < first + count; ++i) {
    if (values.at(i) < 0)
      return false;
    sum += values.at(i);
  }
  return std::abs(sum - 1) < kNear;
}

size_t shortest_prompt(const std::vector<GenerationRow>& rows) {
  size_t least = rows[0].prompt.size();
  for (const GenerationRow& row : rows)
    least = std::min(least, row.prompt.size());
  return least;
}

}  // namespace

GenerationModel generation_model(const Setup& setup, int64_t window_of_any) {
  const Model& model = setup.model();
  const auto refuse = [&](const std::string& why) {
    throw ConfigError("E324", setup.config().model.loc,
                      fmt::format("this model does not continue texts: {}", why))
        .help(
            "`generate` takes models of ids (batch, steps), `Input: {shape: [STEPS], dtype: "
            "int32}`, with logits (batch, steps, ids)");
  };
  if (model.outputs().size() != 1)
    refuse(fmt::format("it has {} outputs", model.outputs().size()));
  GenerationModel out;
  int ids = kNone;
  for (const int input : model.inputs()) {
    const std::string& name = model.calls()[static_cast<size_t>(input)].name;
    const bool is_one = name == "segments" || name == "padding_mask";  // of each id of a text
    const SequenceInput role = name == "positions" ? SequenceInput::kPositions
                               : is_one            ? SequenceInput::kSegments
                                                   : SequenceInput::kIds;
    if (role == SequenceInput::kIds && ids != kNone)
      refuse(
          fmt::format("it has several inputs, of which `{}` is neither `positions` nor "
                      "`segments` nor `padding_mask`",
                      name));
    ids = role == SequenceInput::kIds ? input : ids;
    out.inputs.push_back(role);
    out.has_segments = out.has_segments || name == "segments";
    out.has_positions = out.has_positions || name == "positions";
  }
  if (ids == kNone)
    refuse("it has no input of ids");
  const Model::Call& input = model.calls()[static_cast<size_t>(ids)];
  const Model::Call& output = model.calls()[static_cast<size_t>(model.outputs()[0])];
  if (input.output_shape.size() != 2 || input.dtype != DType::kInt32)
    refuse(fmt::format("its input is {} {}", dtype_name(input.dtype),
                       shape_string(input.output_shape)));
  const size_t rank = output.output_shape.size();
  if ((rank != 2 && rank != 3) || output.output_shape.back() < 2)
    refuse(fmt::format("its output is {}", shape_string(output.output_shape)));
  out.window = input.output_shape[1] == kUnknownDim ? window_of_any : input.output_shape[1];
  out.num_ids = output.output_shape.back();
  out.gives_steps = rank == 3;
  if (out.gives_steps && output.output_shape[1] != input.output_shape[1])
    refuse(fmt::format("of {} steps it makes {}", shape_string(input.output_shape),
                       shape_string(output.output_shape)));
  const std::optional<ConfigObject> loss = loss_of_output(setup, 0);
  const OutputScale scale = output_origins(model)[static_cast<size_t>(model.outputs()[0])].scale;
  if (scale != OutputScale::kUnknown)
    out.gives_logits = scale == OutputScale::kLogits;
  else if (loss)
    out.gives_logits = takes_logits(*loss);
  return out;
}

DecodeOptions decode_options(const GenerationModel& model, const Sampler& sampler, int64_t rows) {
  return {.rows = rows,
          .inputs = model.inputs,
          .reorders_rows = sampler.is_search(),
          .gives_hidden = sampler.kind == Sampler::Kind::kContrastive};
}

bool GenerationRequest::ends(const std::vector<int32_t>& ids) const {
  return std::find(stop_ids.begin(), stop_ids.end(), ids.back()) != stop_ids.end() ||
         (is_complete && is_complete(ids));
}

int64_t Generation::least_prompt() const {
  const bool has_steps = model_.gives_steps && engine_.setup().decode_obstacle().empty();
  return has_steps ? 1 : model_.window;
}

std::string Generation::window_reason(int64_t length) const {
  if (!model_.gives_steps)
    return fmt::format("the model gives one output for {} ids", model_.window);
  if (!engine_.setup().decode_obstacle().empty())
    return engine_.setup().decode_obstacle();
  if (engine_.setup().is_decode_bounded() && length > model_.window)
    return fmt::format("the model has {} positions", model_.window);
  return "";
}

std::vector<Generated> Generation::run(const std::vector<GenerationRow>& rows,
                                       const GenerationRequest& request) {
  MESHTRAIN_CHECK(static_cast<int64_t>(rows.size()) == num_rows_, "{} rows", rows.size());
  num_cached_ = 0;
  switch (request.sampler.kind) {
    case Sampler::Kind::kBeam:
      return search_beams(rows, request);
    case Sampler::Kind::kContrastive:
      return search_contrastive(rows, request);
    default:
      return sample_rows(rows, request);
  }
}

// All rows have the same length at any time: one with a longer prompt takes its next id from that.
std::vector<Generated> Generation::sample_rows(const std::vector<GenerationRow>& rows,
                                               const GenerationRequest& request) {
  std::vector<Generated> out(rows.size());
  Sequences sequences;
  const size_t first = shortest_prompt(rows);
  for (const GenerationRow& row : rows)
    sequences.emplace_back(row.prompt.begin(),
                           row.prompt.begin() + static_cast<std::ptrdiff_t>(first));
  const auto is_done = [&](size_t row) {
    const auto made = static_cast<int64_t>(out[row].ids.size());
    return out[row].has_stopped || made >= rows[row].most_ids;
  };
  const auto are_done = [&] {
    for (size_t row = 0; row < rows.size(); ++row) {
      if (!is_done(row))
        return false;
    }
    return true;
  };
  while (!are_done()) {
    if (request.before_step)
      request.before_step();
    const std::vector<float> scores = next_scores(sequences, {}, request.num_ids);
    const size_t position = sequences[0].size();
    const auto num_ids = static_cast<size_t>(request.num_ids);
    for (size_t row = 0; row < rows.size(); ++row) {
      const std::vector<int32_t>& prompt = rows[row].prompt;
      int32_t id = 0;  // of a row that is done, whose output nobody reads
      if (position < prompt.size()) {
        id = prompt[position];
      } else if (!is_done(row)) {
        id = sample_id(
            request.sampler, std::span(scores).subspan(row * num_ids, num_ids),
            sampling_number(request.seed, rows[row].sample, static_cast<int64_t>(position)));
        out[row].ids.push_back(id);
        out[row].has_stopped = request.ends(out[row].ids);
        if (row == 0 && request.on_id)
          request.on_id(id);
      }
      sequences[row].push_back(id);
    }
  }
  return out;
}

// Scores of the id behind each sequence, (rows, num_ids).
std::vector<float> Generation::next_scores(const Sequences& sequences,
                                           std::span<const int32_t> parents, int64_t num_ids) {
  const auto length = static_cast<int64_t>(sequences[0].size());
  const bool has_caches = window_reason(length).empty();
  states_.assign(sequences.size(), {});
  const HostTensor output =
      has_caches ? cached_output(sequences, parents) : window_output(sequences);
  const int64_t ids = output.shape().back();
  const int64_t steps = output.size() / (num_rows_ * ids);
  std::vector<float> scores;
  for (int64_t row = 0; row < num_rows_; ++row) {
    const int64_t last = (row * steps + steps - 1) * ids;
    const bool are_logits = model_.gives_logits.value_or(!are_probabilities(output, last, ids));
    for (int64_t id = 0; id < num_ids; ++id) {
      const double value = output.at(last + id);
      if (!std::isfinite(value))
        throw RuntimeFailure(ExitCode::kDiverged, "the model's output is NaN or infinity");
      scores.push_back(static_cast<float>(are_logits ? value : std::log(value)));
    }
  }
  return scores;
}

// The rows are reordered once: by the first of the runs that the new steps take.
HostTensor Generation::cached_output(const Sequences& sequences, std::span<const int32_t> parents) {
  const auto length = static_cast<int64_t>(sequences[0].size());
  std::vector<int32_t> order(parents.begin(), parents.end());
  HostTensor output;
  while (num_cached_ < length) {
    const int64_t steps = length - num_cached_ >= kPrefill ? kPrefill : 1;
    std::vector<int32_t> ids;
    for (const std::vector<int32_t>& sequence : sequences)
      ids.insert(ids.end(), sequence.begin() + num_cached_, sequence.begin() + num_cached_ + steps);
    output = keep_states(engine_.decode_step(ids, num_cached_, order));
    std::iota(order.begin(), order.end(), 0);
    num_cached_ += steps;
  }
  return output;
}

// Stateful layers begin each window anew: it has the ids of the one before.
HostTensor Generation::window_output(const Sequences& sequences) {
  reset_rnn_states(engine_);
  Dataset dataset;
  dataset.description = "the texts so far";
  dataset.num_samples = num_rows_;
  for (const SequenceInput input : model_.inputs) {
    HostTensor values(DType::kInt32, {num_rows_, model_.window});
    int32_t* to = values.data<int32_t>();
    for (const std::vector<int32_t>& sequence : sequences) {
      if (input == SequenceInput::kIds)
        std::copy(sequence.end() - model_.window, sequence.end(), to);
      else if (input == SequenceInput::kPositions)
        std::iota(to, to + model_.window, 0);
      else
        std::fill_n(to, model_.window, 1);
      to += model_.window;
    }
    dataset.inputs.push_back({"x", make_rows(std::move(values))});
  }
  const auto& [shards, loc] = engine_.setup().config().data.head_tail;
  if (shards > 1)
    order_steps(dataset, shards, loc);
  std::vector<int64_t> rows(static_cast<size_t>(num_rows_));
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<HostTensor> outputs = engine_.predict_step({&dataset, rows});
  for (HostTensor& output : outputs)
    output = restore_steps(std::move(output), shards);
  return keep_states(std::move(outputs));
}

// Adds the hidden states among the outputs, where there are some, to those of each row. Returns
// the scores.
HostTensor Generation::keep_states(std::vector<HostTensor> outputs) {
  if (outputs.size() > 1) {
    const HostTensor& states = outputs[1];
    const int64_t size = states.size() / num_rows_;
    state_width_ = static_cast<size_t>(states.shape().back());
    for (int64_t i = 0; i < states.size(); ++i)
      states_[static_cast<size_t>(i / size)].push_back(states.at(i));
  }
  return std::move(outputs[0]);
}

std::span<const double> Generation::last_state(size_t row) const {
  return std::span(states_[row]).last(state_width_);
}

}  // namespace meshtrain
