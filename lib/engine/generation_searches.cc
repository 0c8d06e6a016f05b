// Beam search and contrastive search: several rows for one text.
#include <algorithm>
#include <numeric>

#include "engine/generation.h"
#include "engine/token_states.h"

namespace meshtrain {

std::vector<Generated> Generation::search_beams(const std::vector<GenerationRow>& rows,
                                                const GenerationRequest& request) {
  const std::vector<int32_t>& prompt = rows[0].prompt;
  std::vector<Generated> out(rows.size());
  std::vector<Beam> beams(rows.size());
  Sequences sequences(rows.size(), prompt);
  std::vector<int32_t> parents(rows.size());
  std::iota(parents.begin(), parents.end(), 0);
  for (int64_t step = 0; step < rows[0].most_ids; ++step) {
    if (std::all_of(beams.begin(), beams.end(), [](const Beam& beam) { return beam.has_ended; }))
      break;
    if (request.before_step)
      request.before_step();
    const std::vector<float> scores = next_scores(sequences, parents, request.num_ids);
    const std::vector<BeamStep> steps = beam_step(request.sampler, beams, scores, step == 0);
    const std::vector<Generated> before = out;
    const Sequences earlier = sequences;
    for (size_t row = 0; row < steps.size(); ++row) {
      const auto parent = static_cast<size_t>(steps[row].parent);
      parents[row] = steps[row].parent;
      beams[row] = steps[row].beam;
      out[row] = before[parent];
      sequences[row] = earlier[parent];
      sequences[row].push_back(std::max(steps[row].id, 0));
      if (steps[row].id >= 0) {
        out[row].ids.push_back(steps[row].id);
        out[row].has_stopped = beams[row].has_ended = request.ends(out[row].ids);
      }
    }
  }
  return out;
}

// Each row reads the text so far with a candidate behind it. The row of the best one is continued.
std::vector<Generated> Generation::search_contrastive(const std::vector<GenerationRow>& rows,
                                                      const GenerationRequest& request) {
  Generated out;
  Sequences sequences(rows.size(), rows[0].prompt);
  std::vector<int32_t> parents(rows.size(), 0);
  std::vector<float> scores = next_scores(sequences, parents, request.num_ids);
  TokenStates earlier;
  earlier.add(states_[0], state_width_);
  const auto num_ids = static_cast<size_t>(request.num_ids);
  while (!out.has_stopped && static_cast<int64_t>(out.ids.size()) < rows[0].most_ids) {
    if (request.before_step)
      request.before_step();
    const auto best = static_cast<size_t>(parents[0]);
    const std::vector<Candidate> candidates =
        contrastive_candidates(request.sampler, std::span(scores).subspan(best * num_ids, num_ids));
    const std::vector<int32_t> text = sequences[best];
    for (size_t row = 0; row < rows.size(); ++row) {
      sequences[row] = text;
      sequences[row].push_back(candidates[row].id);
    }
    scores = next_scores(sequences, parents, request.num_ids);
    std::vector<double> similarities;
    for (size_t row = 0; row < rows.size(); ++row)
      similarities.push_back(earlier.largest_similarity(last_state(row)));
    const size_t choice = contrastive_choice(request.sampler, candidates, similarities);
    earlier.add(last_state(choice), state_width_);
    std::fill(parents.begin(), parents.end(), static_cast<int32_t>(choice));
    out.ids.push_back(candidates[choice].id);
    out.has_stopped = request.ends(out.ids);
    if (request.on_id)
      request.on_id(out.ids.back());
  }
  return std::vector<Generated>(rows.size(), out);
}

}  // namespace meshtrain
