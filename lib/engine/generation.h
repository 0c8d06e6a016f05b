// Sequences that a language model continues: the ids behind each prompt.
//
// A model whose graph has incremental steps (passes/incremental.h) computes each id from caches of
// the earlier ones. Any other model, and one whose positions end before the text does, reads the
// last window anew for each id.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/sampler.h"

namespace meshtrain {

// What a model says about generating.
struct GenerationModel {
  int64_t window = 0;   // steps that it reads
  int64_t num_ids = 0;  // of the output
  bool gives_steps =
      true;  // (batch, steps, ids); false: (batch, ids), of the step behind the window
  // False: probabilities. Nothing where neither the model nor its loss says so: the numbers do.
  std::optional<bool> gives_logits;
  // Inputs beside the ids are known by their names, `positions`, `segments` and `padding_mask`, as
  // the sources of texts know them.
  std::vector<SequenceInput> inputs;
  // Whether there is an input `segments`, and one of positions, which begin anew in each document.
  bool has_segments = false, has_positions = false;
};

// Returns it for the model of `setup`. An Input without a length has `window_of_any`. Throws
// ConfigError E324 for a model that does not give ids for ids, with what it takes and gives.
GenerationModel generation_model(const Setup& setup, int64_t window_of_any);

// Returns what the engine of a Generation of `rows` rows computes.
DecodeOptions decode_options(const GenerationModel& model, const Sampler& sampler, int64_t rows);

struct GenerationRequest {
  Sampler sampler;
  int64_t seed = 0;
  int64_t num_ids = 0;  // ids from here on are never sampled: the vocabulary is smaller
  std::vector<int32_t> stop_ids;
  // Whether a text is complete; it gets the new ids.
  std::function<bool(std::span<const int32_t>)> is_complete;
  // Whether a text ends with the last of its new ids.
  bool ends(const std::vector<int32_t>& ids) const;
  // Of each id that row 0 gets behind its prompt, as it comes; not with beams.
  std::function<void(int32_t id)> on_id;
  // Before each id of any row: throws where a signal asks to stop.
  std::function<void()> before_step;
};

// A text to be continued, and how.
struct GenerationRow {
  std::vector<int32_t> prompt;  // not empty
  int64_t sample = 0;           // of this prompt
  int64_t most_ids = 0;         // behind the prompt
};

struct Generated {
  std::vector<int32_t> ids;  // behind the prompt, a stop id among them
  bool has_stopped = false;  // by a stop id or is_complete
};

class Generation {
 public:
  // `engine` has decode_options() with as many rows as each call of run().
  Generation(Engine& engine, const GenerationModel& model, int64_t rows)
      : engine_(engine), model_(model), num_rows_(rows) {}

  // Whether each id takes a whole window for texts of this length, and why; "" where caches do.
  std::string window_reason(int64_t length) const;

  // Ids that a prompt needs: a window has no gaps.
  int64_t least_prompt() const;

  // Continues as many rows as the constructor was given. In a search all rows are those of one
  // text, and row 0 of the result is the best.
  std::vector<Generated> run(const std::vector<GenerationRow>& rows,
                             const GenerationRequest& request);

 private:
  using Sequences = std::vector<std::vector<int32_t>>;

  std::vector<float> next_scores(const Sequences& sequences, std::span<const int32_t> parents,
                                 int64_t num_ids);
  HostTensor cached_output(const Sequences& sequences, std::span<const int32_t> parents);
  HostTensor window_output(const Sequences& sequences);
  HostTensor keep_states(std::vector<HostTensor> outputs);
  std::span<const double> last_state(size_t row) const;
  std::vector<Generated> sample_rows(const std::vector<GenerationRow>& rows,
                                     const GenerationRequest& request);
  std::vector<Generated> search_beams(const std::vector<GenerationRow>& rows,
                                      const GenerationRequest& request);
  std::vector<Generated> search_contrastive(const std::vector<GenerationRow>& rows,
                                            const GenerationRequest& request);

  Engine& engine_;
  GenerationModel model_;
  int64_t num_rows_;
  int64_t num_cached_ = 0;  // steps that the caches have
  // Of each row, the hidden states of the steps that next_scores() read; for contrastive search.
  std::vector<std::vector<double>> states_;
  size_t state_width_ = 0;
};

}  // namespace meshtrain
